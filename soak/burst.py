"""Three times as many rows as can be joined, for a minute: memory stays in budget, the delay recovers, nothing is lost.

The join is index nested loops on a disk without a cache, which a stream can overrun in earnest. How much it sustains is measured
first, then rows come at a third of that, at three times as much, and at a third again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from soak.section_options import run_section, section_parser

KEYS = 500_000
MEMORY = 8 << 20  # of the executor
TARGET = 4.0  # seconds that a row may take
_TICK = 0.25  # seconds between two files
_PAYLOAD = 100  # bytes
_PROBE = 40_000  # rows to measure the sustainable rate with
_GENTLE, _HARD = 1 / 3, 3.0
# What two workers gather for row groups beside the budget of a join this small: docs/reference/spark.md
_GATHERED = 2 * (1 << 20)
# What threads and malloc of two workers may add that no budget sees. Growth in all was 10.1 MiB in the one run it was measured in
_ALLOCATORS = 2 * (2 << 20)


@dataclass(kw_only=True)
class Burst:
    """The outcome of a burst."""

    sustainable: float
    """rows per second that the query can join"""
    rows: int
    shed: int
    replayed: int
    growth: int
    """largest growth in bytes of all Python workers together"""
    delays: dict[str, float]
    """longest delay in seconds of a micro-batch, by phase"""
    faults: list[str]


def burst(root: Path, seconds: float, say: Any = lambda line: None) -> Burst:
    """Run it in an empty directory, with a local Spark."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "in").mkdir()
    payload = pa.array([f"{k:0{_PAYLOAD}d}" for k in range(1000)]).take(pa.array(np.arange(KEYS) % 1000))
    hr.Relation.create(root / "r", pa.table({"k": np.arange(KEYS), "name": payload}), key="k", shards=1).close()
    with local_session("headrace burst") as spark, hr.Relation.open(root / "r", disk="direct") as relation:
        sustainable = _sustainable(spark, root, relation)
        say(f"{sustainable:,.0f} rows a second can be sustained")
        feed = _Feed(root / "in")
        reader = spark.readStream.schema("id bigint, k bigint").parquet(str(root / "in"))
        out = hr.enrich(
            reader,
            relation,
            on="k",
            memory=MEMORY,
            algorithm="inl",
            shed=hr.Shedding("sample", target_delay=TARGET, state=root / "state"),
        )
        query = hr.load(out, root / "table", checkpoint=root / "checkpoint", trigger={"processingTime": "0 seconds"})
        phases = (
            ("before", _GENTLE, seconds / 3),
            ("burst", _HARD, seconds),
            ("settling", _GENTLE, seconds / 3),
            ("after", _GENTLE, seconds / 3),
        )
        with _watched() as memory:
            for name, times, long in phases:
                feed.write(name, times * sustainable, long)
                say(f"{name}: {feed.rows:,} rows so far")
            query.processAllAvailable()
        query.stop()
        delays = _delays(root, feed)
        shed = _shed(root)
        replayed = hr.replay(root / "state", root / "table", session=spark, checkpoint=root / "checkpoint")
    faults = _faults(root, feed.rows)
    growth = memory["most"] - memory["warm"]
    if growth > MEMORY + _GATHERED + _ALLOCATORS:
        faults.append(f"Python workers grew by {growth >> 20} MiB, with a budget of {MEMORY >> 20} MiB")
    if delays["after"] > TARGET:
        faults.append(f"the delay did not recover: {delays['after']:.1f} s after the burst, for a target of {TARGET} s")
    if not shed:
        faults.append("nothing was shed: it was no burst")
    return Burst(
        sustainable=sustainable,
        rows=feed.rows,
        shed=shed,
        replayed=replayed.rows,
        growth=growth,
        delays=delays,
        faults=faults,
    )


@contextmanager
def local_session(name: str) -> Iterator[Any]:
    """A Spark on two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.streaming.minBatchesToRetain": "10000",  # the times of all are looked at in the end
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _sustainable(spark: Any, root: Path, relation: hr.Relation) -> float:
    """Rows a second of a batch that is all there, the second time."""
    rng = np.random.default_rng(1)
    pq.write_table(pa.table({"k": rng.integers(0, KEYS, _PROBE)}), root / "probe.parquet")
    took = 0.0
    for _ in range(2):
        df = spark.read.parquet(str(root / "probe.parquet")).repartition(2)
        begun = time.monotonic()
        hr.enrich(df, relation, on="k", memory=MEMORY, algorithm="inl").write.format("noop").mode("overwrite").save()
        took = time.monotonic() - begun
    return _PROBE / took


class _Feed:
    """Files that come at a rate."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rows = 0
        self.written: dict[str, tuple[str, float]] = {}  # phase and time of each file
        self._rng = np.random.default_rng(2)

    def write(self, phase: str, rate: float, seconds: float) -> None:
        begun = time.monotonic()
        each = max(1, int(rate * _TICK))
        for n in range(round(seconds / _TICK)):
            draft = self.directory / ".draft"
            ids = np.arange(self.rows, self.rows + each)
            pq.write_table(pa.table({"id": ids, "k": self._rng.integers(0, KEYS, each)}), draft)
            name = f"{self.rows:010d}.parquet"
            draft.rename(self.directory / name)
            self.written[name] = phase, time.time()
            self.rows += each
            time.sleep(max(0.0, begun + (n + 1) * _TICK - time.monotonic()))


@contextmanager
def _watched() -> Iterator[dict[str, int]]:
    """The memory of all Python workers together: when warm, and at most."""
    seen, stop = {"warm": 0, "most": 0}, Event()

    def look() -> None:
        begun = time.monotonic()
        while not stop.wait(0.2):
            total = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    if "pyspark.daemon" in " ".join(process.cmdline()):
                        total += process.memory_full_info().uss
                except psutil.Error:
                    pass
            # What Python, Arrow and Numba take is there after the first seconds.
            seen["warm" if time.monotonic() - begun < 10 else "most"] = max(
                total, seen["warm" if time.monotonic() - begun < 10 else "most"]
            )

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def _delays(root: Path, feed: _Feed) -> dict[str, float]:
    """The longest time from a file to the commit of its micro-batch, by phase."""
    found = dict.fromkeys(("before", "burst", "settling", "after"), 0.0)
    for entry in (root / "checkpoint" / "sources" / "0").iterdir():
        if not entry.name.isdigit():
            continue
        commit = root / "checkpoint" / "commits" / entry.name
        for line in entry.read_text().splitlines()[1:]:
            name = Path(json.loads(line)["path"]).name
            phase, at = feed.written[name]
            found[phase] = max(found[phase], commit.stat().st_mtime - at)
    return found


def _shed(root: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in (root / "state").rglob("*.parquet"))


def _faults(root: Path, rows: int) -> list[str]:
    from deltalake import DeltaTable

    got = DeltaTable(str(root / "table")).to_pyarrow_table(columns=["id"])
    times = np.bincount(got["id"].to_numpy(), minlength=rows)
    if times.size > rows or (times != 1).any():
        return [f"{int((times == 0).sum())} rows lost, {int((times > 1).sum())} there more than once"]
    return []


def run(argv: list[str]) -> int:
    """The section of `make soak`."""
    parser = section_parser("burst", "Three times as many rows as can be joined.")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(argv)

    def work(root: Path, say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
        over = burst(root, options.seconds, say)
        delays = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in over.delays.items())
        say(
            f"{over.rows:,} rows, {over.shed:,} shed and {over.replayed:,} brought back; delays: {delays}; Python workers grew by"
            f" {over.growth >> 20} MiB"
        )
        return asdict(over), over.faults

    return run_section(options, work)
