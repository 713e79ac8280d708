"""A real Spark cluster on loopback: one master, two workers of a core each."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


class Cluster:
    """Processes in groups of their own, so that all of them can be ended."""

    def __init__(self, directory: Path) -> None:
        import pyspark

        self.directory = directory
        self.home = Path(pyspark.__file__).parent
        # Java compiles once and quickly: a process that is killed soon has no use for more.
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        launched = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")
        self.environment = (
            os.environ
            | dict.fromkeys(launched, quick)
            | {
                "SPARK_HOME": str(self.home),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_NO_DAEMONIZE": "1",
                # An executor that is killed is started again, however often.
                "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
                "SPARK_WORKER_DIR": str(directory / "work"),
                "SPARK_LOCAL_DIRS": str(directory / "local"),
                "HEADRACE_STATE": str(directory / "state"),
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            }
        )
        self._processes: list[subprocess.Popen] = []
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """The master, then the workers; waits until they know each other."""
        self._start("master", "Master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        self._wait("master", "I have been elected leader|New state: ALIVE")
        for name in ("one", "two"):
            self._start(
                name,
                "Worker",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                self.master,
            )
        for name in ("one", "two"):
            self._wait(name, "Successfully registered with master")

    def _start(self, name: str, kind: str, *options: str) -> None:
        with (self.directory / name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [self.home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind.lower()}.{kind}", *options],
                    stdout=log,
                    stderr=log,
                    env=self.environment,
                    start_new_session=True,
                )
            )

    def _wait(self, name: str, words: str, patience: float = 60.0) -> None:
        until = time.monotonic() + patience
        while not re.search(words, (self.directory / name).read_text()):
            assert time.monotonic() < until, (self.directory / name).read_text()
            assert self._processes[-1].poll() is None, (self.directory / name).read_text()
            time.sleep(0.1)

    def run(self, program: Path, *args: object) -> dict[str, Any]:
        """What a driver program says in the end, as JSON."""
        driver = subprocess.Popen(
            [sys.executable, program, self.master, *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        try:
            out, errors = driver.communicate(timeout=200)
        finally:
            end(driver)
        assert driver.returncode == 0, errors[-6000:]
        return json.loads(out.splitlines()[-1])

    def close(self) -> None:
        """End all of them."""
        for process in reversed(self._processes):
            end(process)


def end(process: subprocess.Popen) -> None:
    """End a process and its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
