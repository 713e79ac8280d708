"""A real cluster on loopback: one master, two workers, the driver in a process of its own."""

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

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

KEYS = 3000


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


class Cluster:
    """Processes in groups of their own, so that all of them can be ended."""

    def __init__(self, directory: Path) -> None:
        import pyspark

        self.directory = directory
        self.home = Path(pyspark.__file__).parent
        self.environment = os.environ | {
            "SPARK_HOME": str(self.home), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1", "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_LOCAL_DIRS": str(directory / "local"), "HEADRACE_STATE": str(directory / "state"),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }  # fmt: skip
        self._processes: list[subprocess.Popen] = []
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
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
                    stdout=log, stderr=log, env=self.environment, start_new_session=True,
                )
            )  # fmt: skip

    def _wait(self, name: str, words: str, patience: float = 60.0) -> None:
        until = time.monotonic() + patience
        while not re.search(words, (self.directory / name).read_text()):
            assert time.monotonic() < until, (self.directory / name).read_text()
            assert self._processes[-1].poll() is None, (self.directory / name).read_text()
            time.sleep(0.1)

    def run(self, *args: object) -> dict:
        """What the driver program says."""
        program = Path(__file__).with_name("cluster_job.py")
        driver = subprocess.Popen(
            [sys.executable, program, self.master, *map(str, args)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment, start_new_session=True,
        )  # fmt: skip
        try:
            out, errors = driver.communicate(timeout=200)
        finally:
            end(driver)
        assert driver.returncode == 0, errors[-6000:]
        return json.loads(out.splitlines()[-1])

    def close(self) -> None:
        for process in reversed(self._processes):
            end(process)


def end(process: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster")
    some = Cluster(directory)
    try:
        some.start()
        yield some
    finally:
        some.close()


@pytest.fixture(scope="module")
def relation(tmp_path_factory):
    path = tmp_path_factory.mktemp("relation") / "r"
    k = np.arange(KEYS - 500)
    hr.Relation.create(path, pa.table({"k": k, "v": k * 3, "s": [f"name {x}" for x in k]}), key="k").close()
    return path


def test_contract_each_row_once_on_two_executors_and_with_one_of_them_killed(cluster, relation, tmp_path):
    from deltalake import DeltaTable

    files, rows = 3, 4000
    facts = cluster.run(relation, tmp_path, files, rows, KEYS)
    got = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    n = np.arange(2 * files * rows)
    n = n[n * 7919 % KEYS < KEYS - 500]
    assert np.array_equal(np.sort(got["n"].to_numpy()), n)
    assert np.array_equal(got["k"].to_numpy(), got["n"].to_numpy() * 7919 % KEYS)
    assert np.array_equal(got["v"].to_numpy(), got["k"].to_numpy() * 3)
    assert got["s"].to_pylist() == [f"name {k}" for k in got["k"].to_pylist()]
    assert facts["workers"] == 1
    assert facts["batches"] == list(range(2 * files))
    assert facts["rows"] == facts["served"] == [rows] * 2 * files
    assert facts["hits"][2] > rows / 2, "what the first micro-batches fetched serves the third"
    assert all(0 < used <= limit for used, limit in zip(facts["memory"], facts["limits"], strict=True))
    # A micro-batch that ran on both executors shows the budgets of both.
    assert 16 << 20 in facts["limits"][:files]
    # While one of them is killed, tasks may have run on it, on the other and on the one that comes after it.
    assert set(facts["limits"]) <= {8 << 20, 16 << 20, 24 << 20}
