"""A Kafka broker of our own: KRaft, one node, on loopback, in a directory that is gone afterwards."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path

PATIENCE = 90  # seconds for what takes three on an idle machine

SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={root}/data
num.partitions=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.enable=false
"""
LOGGING = """
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n
"""


def _jars(part: str) -> list[Path]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "headrace", "kafka")
    return sorted((home / part).glob("*.jar")) if (home / "complete").exists() else []


def broker_jars() -> list[Path]:
    return _jars("broker")


def connector_jars() -> list[Path]:
    """For spark.jars; scripts/kafka fetches them."""
    return _jars("connector")


class Broker:
    """Started and stopped by `with`."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
        self.port, controller = _free_ports(2)
        self.servers = f"127.0.0.1:{self.port}"
        self._settings, self._log = self._root / "server.properties", self._root / "log"
        self._settings.write_text(SETTINGS.format(port=self.port, controller=controller, root=self._root))
        (self._root / "log4j.properties").write_text(LOGGING)
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Broker:
        try:
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]  # it may begin with a dash
            self._start("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(self._settings)).wait(
                PATIENCE
            )
            self.start()
        except BaseException:
            self._stop()
            raise
        return self

    def start(self) -> None:
        """Start it, also after `kill`: it goes on with what it had; waits until it listens."""
        self._process = self._start("kafka.Kafka", str(self._settings))
        begun = time.monotonic()
        while not self._answers():
            assert self._process.poll() is None, f"the broker ended by itself:\n{self._log.read_text()[-3000:]}"
            assert time.monotonic() - begun < PATIENCE, f"it does not start:\n{self._log.read_text()[-3000:]}"
            time.sleep(0.1)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def send(self, topic: str, lines: list[str]) -> None:
        """Append messages to a topic, each once, while the broker lives."""
        settings = ("acks=all", "enable.idempotence=true", "linger.ms=5")
        properties = [f"--producer-property={setting}" for setting in settings]
        arguments = ["--bootstrap-server", self.servers, "--topic", topic, *properties]
        producer = self._start("kafka.tools.ConsoleProducer", *arguments, stdin=subprocess.PIPE)
        producer.communicate("".join(f"{line}\n" for line in lines).encode(), timeout=PATIENCE)
        assert producer.returncode == 0, self._log.read_text()[-3000:]

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _answers(self) -> bool:
        """It listens when it is ready, not before."""
        with closing(socket.socket()) as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def _start(self, program: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen:
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
        jars = os.pathsep.join(map(str, broker_jars()))
        logging = f"-Dlog4j.configuration=file:{self._root}/log4j.properties"
        command = [
            str(java),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            logging,
            "-cp",
            jars,
            program,
            *arguments,
        ]
        with self._log.open("ab") as out:
            return subprocess.Popen(command, stdin=stdin, stdout=out, stderr=out)

    def _stop(self) -> None:
        self.kill()  # nothing of it is kept
        shutil.rmtree(self._root, ignore_errors=True)


def _free_ports(many: int) -> list[int]:
    """Ports that nobody listens at now, all different."""
    sockets = [socket.socket() for _ in range(many)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
