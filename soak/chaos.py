"""Kill -9 at random, over and over, while the relation changes; in the end the warehouse is as if nothing had happened.

Victims: the driver (its Python, or its JVM), an executor's JVM, a Python worker; and the driver in the midst of a commit, when
files of a micro-batch are there and the table does not know them yet.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psutil
import pyarrow.parquet as pq

from soak.cluster import Cluster, end
from soak.oracle import History, faults
from soak.places import Places, sales

KINDS = {"worker": 0.4, "executor": 0.25, "commit": 0.15, "driver": 0.1, "driver jvm": 0.1}  # and how often
FILE_ROWS, FILES = 500, 40  # of an input file; files that come before each life of a driver
_PATIENCE = 240.0  # seconds for a driver that is let live
_QUIET = 1.0  # seconds between two changes of the relation


@dataclass
class ChaosOutcome:
    """What happened, and what is wrong in the end."""

    kills: Counter[str]
    lives: int
    rows: int
    versions: int
    seconds: float
    faults: list[str]


def chaos(
    root: Path, kills: int, seed: int, say: Callable[[str], None] = lambda line: None, *, files: int = FILES
) -> ChaosOutcome:
    """Run it in an empty directory until so many were killed; say how it goes. `files` come before each life of a driver."""
    begun = time.monotonic()
    rng = np.random.default_rng(seed)
    places = Places(root)
    places.input.mkdir(parents=True)
    history = History(places, np.random.default_rng([seed, 1]))
    history.create()
    done: Counter[str] = Counter()
    lives = rows = 0
    with _cluster(root / "cluster") as cluster, _changing(history):
        while done.total() < kills:
            rows = _more_sales(places, rows, seed, files)
            lives += 1
            with _driver(cluster, root) as driver:
                _disturb(driver, places, rng, done, kills)
            say(f"{done.total()} of {kills} killed, {lives} lives, {rows:,} rows, {len(history.versions)} versions")
        lives += 1
        with _driver(cluster, root) as driver:  # it may live, and must come to its end
            try:
                code = driver.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                return _outcome(done, lives, rows, history, begun, [f"the last driver did not end: {_tail(root)}"])
        if code:
            return _outcome(done, lives, rows, history, begun, [f"the last driver ended with {code}: {_tail(root)}"])
    return _outcome(done, lives, rows, history, begun, faults(places, history, rows, seed))


def _outcome(
    done: Counter[str], lives: int, rows: int, history: History, begun: float, wrong: list[str]
) -> ChaosOutcome:
    return ChaosOutcome(done, lives, rows, len(history.versions), time.monotonic() - begun, wrong)


def _more_sales(places: Places, rows: int, seed: int, files: int) -> int:
    for _ in range(files):
        draft = places.input / f".{rows:09d}"
        pq.write_table(sales(rows, FILE_ROWS, seed), draft)
        draft.rename(places.input / f"{rows:09d}.parquet")
        rows += FILE_ROWS
    return rows


# -- what runs -------------------------------------------------------------------------------------------------------------


@contextmanager
def _cluster(directory: Path) -> Iterator[Cluster]:
    directory.mkdir()
    cluster = Cluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@contextmanager
def _changing(history: History) -> Iterator[None]:
    """New versions of the relation all the time."""
    stop = Event()

    def change() -> None:
        while not stop.wait(_QUIET):
            history.change()

    thread = Thread(target=change, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _driver(cluster: Cluster, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (root / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "soak.job", str(root), cluster.master],
            stdout=log,
            stderr=log,
            env=cluster.environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def _tail(root: Path) -> str:
    return (root / "driver.log").read_text(errors="replace")[-4000:]


# -- who is killed ---------------------------------------------------------------------------------------------------------


def _disturb(
    driver: subprocess.Popen[bytes], places: Places, rng: np.random.Generator, done: Counter[str], kills: int
) -> None:
    """Kill, until a driver is among the victims, or it ends by itself."""
    if rng.random() < 0.15:  # at any moment of its start
        time.sleep(rng.uniform(1, 6))
        _kill_driver(driver, done, "driver")
        return
    if not _at_work(driver, places):
        return
    while driver.poll() is None and done.total() < kills:
        kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
        time.sleep(rng.uniform(0, 2.5))
        if kind == "commit":
            before = _files(places)
            until = time.monotonic() + 10
            while not _files(places) - before and driver.poll() is None and time.monotonic() < until:
                time.sleep(0.002)
            _kill_driver(driver, done, kind)
            return
        if kind.startswith("driver"):
            victims = [p for p in _children(driver) if p.name() == "java"] if kind == "driver jvm" else []
            if victims:
                _kill(victims[0], done, kind)
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(20)
            _kill_driver(driver, done, None if victims else kind)
            return
        victims = _executors() if kind == "executor" else _workers()
        if victims:
            _kill(victims[rng.integers(len(victims))], done, kind)


def _at_work(driver: subprocess.Popen[bytes], places: Places) -> bool:
    """Wait until a micro-batch was committed in this life; False if the driver ended first."""
    before = _commits(places)
    while _commits(places) == before:
        if driver.poll() is not None:
            return False
        time.sleep(0.05)
    return True


def _commits(places: Places) -> int:
    return sum(1 for _ in places.checkpoint.glob("commits/[0-9]*"))


def _files(places: Places) -> set[str]:
    return {path.name for path in places.table.glob("*.parquet")}


def _kill_driver(driver: subprocess.Popen[bytes], done: Counter[str], kind: str | None) -> None:
    """With its whole group: the JVM that it started is in it."""
    if driver.poll() is None and kind:
        done[kind] += 1
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def _kill(process: psutil.Process, done: Counter[str], kind: str) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()
        done[kind] += 1


def _children(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(driver.pid).children(recursive=True)
    return []


def _mine(words: str) -> list[psutil.Process]:
    """Processes below this one whose command has these words."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if words in " ".join(process.cmdline()):
                found.append(process)
    return found


def _executors() -> list[psutil.Process]:
    return _mine("CoarseGrainedExecutorBackend")


def _workers() -> list[psutil.Process]:
    """Python workers; not the daemons that they are forked from."""
    python = _mine("pyspark.daemon")
    ids = {process.pid for process in python}
    found = []
    for process in python:
        with suppress(psutil.Error):
            if process.ppid() in ids:
                found.append(process)
    return found
