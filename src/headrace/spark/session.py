"""A Spark of a command's own: on this machine, quiet on the terminal, and gone with the command."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING

from headrace.errors import OutsideFailure
from headrace.files import close, open_append
from headrace.secrets import hide_secrets, is_secret_name
from headrace.spark.tuning import tune_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Python loggers of PySpark that write whole stacks of Java to the terminal, beside the exception that is raised.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")
# What Java, or the program that starts Spark in it, needs before there is a session. The rest is handed over afterwards.
_NEEDED_FIRST = ("spark.driver.", "spark.jars", "spark.submit.", "spark.archives")
_LEAVE = 20  # seconds that Java gets to go by itself


class SparkFailed(OutsideFailure):
    """Spark did not start, or gave up. The message says where to read why."""


@contextmanager
def quiet_loggers(log: Path | None = None) -> Iterator[None]:
    """Keep what PySpark's loggers say from the terminal; it goes to the log, if there is one."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [(logger.handlers[:], logger.propagate) for logger in loggers]
    handler: logging.Handler = logging.NullHandler()
    if log is not None:
        handler = logging.FileHandler(log)  # files: open_append has made it, for its owner alone
    try:
        for logger in loggers:
            logger.handlers, logger.propagate = [handler], False
        yield
    finally:
        handler.close()
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate


@contextmanager
def own_session(log: Path, settings: Mapping[str, str], private: Collection[str] = ()) -> Iterator[SparkSession]:
    """A session with these settings, tuned where they leave it open. Spark's output goes to the log, not to the terminal.

    Args:
        log: the file of Spark's output.
        settings: of Spark.
        private: names of settings whose values no list of processes may show, beside those that look secret.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.get("spark.master", "local").startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = SparkConf().setAll(list(settings.items()))
    said = open_append(log)
    try:
        # Every user of the machine can read the command line that Spark is started with.
        gateway = launch_gateway(
            SparkConf().setAll(_on_command_line(settings, private)), {"stdout": said, "stderr": said}
        )
    except PySparkRuntimeError as error:
        raise SparkFailed(f"Spark did not start: it needs Java 17 or later; {log} says more") from error
    finally:
        close(said)
    try:
        try:
            spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
        except Py4JError as error:
            raise SparkFailed(f"Spark did not start: {_first_line(error)}; {log} says more") from error
        try:
            tune_session(spark)
            with quiet_loggers(log):
                yield spark
        finally:
            spark.stop()
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java goes when this pipe does
        with suppress(TimeoutExpired):
            gateway.proc.wait(_LEAVE)


def _on_command_line(settings: Mapping[str, str], private: Collection[str]) -> list[tuple[str, str]]:
    """The settings that Spark is started with, in the sight of all users.

    Example:
        >>> settings = {"spark.driver.memory": "2g", "spark.hadoop.fs.s3a.secret.key": "5f3a", "spark.a": "b", "spark.c": "d"}
        >>> _on_command_line(settings, private=["spark.driver.memory", "spark.c"])
        [('spark.driver.memory', '2g'), ('spark.a', 'b')]
    """
    return [
        (name, value)
        for name, value in settings.items()
        if name.startswith(_NEEDED_FIRST)
        or not (name in private or is_secret_name(name) or hide_secrets(value) != value)
    ]


@contextmanager
def command_session(log: Path, settings: Mapping[str, str], private: Collection[str] = ()) -> Iterator[SparkSession]:
    """The session that is running, in a notebook for example, or else one with these settings; see `own_session`."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is None:
        with own_session(log, settings, private) as spark:
            yield spark
        return
    with quiet_loggers():
        yield there


def quiet_settings(name: str, master: str) -> dict[str, str]:
    """Settings of a command's Spark: nothing on the terminal, no web page, and on this machine reachable from nowhere else."""
    settings = {
        "spark.master": master,
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.python.daemon.module": "headrace.spark.daemon",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def local_settings(name: str, cores: int, scratch: Path) -> dict[str, str]:
    """Settings of a Spark on this machine, reachable from nowhere else."""
    return {
        **quiet_settings(name, f"local[{cores}]"),
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "tables"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
    }


def _first_line(error: Exception) -> str:
    """The error of Java that a call ended with, without its stack."""
    text = str(getattr(error, "java_exception", error))
    return text.strip().split("\n")[0]
