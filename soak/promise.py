"""A promised delay under a load that the machine sustains: rows wait to share reads, and none leaves after its deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from soak.burst import local_session
from soak.section_options import run_section, section_parser

KEYS = 500_000
RATE = 5000  # rows a second
DEADLINE = 5.0  # seconds


@dataclass
class Promise:
    """What happened."""

    rows: int
    deferred: int
    """rows that waited"""
    late: int
    """that left after their deadline"""
    longest: float
    """seconds that a row waited"""
    pages: float
    """read per row"""
    warnings: list[str]
    """said beforehand, where the deadline could not be kept"""
    faults: list[str]


def promise(root: Path, seconds: float, say: Any = lambda line: None) -> Promise:
    """Run it in an empty directory, with a local Spark."""
    root.mkdir(parents=True, exist_ok=True)
    names = pa.array([f"{k:0100d}" for k in range(1000)]).take(pa.array(np.arange(KEYS) % 1000))
    hr.Relation.create(root / "r", pa.table({"k": np.arange(KEYS), "name": names}), key="k", shards=2).close()
    with local_session("headrace promise") as spark, hr.Relation.open(root / "r") as relation:
        stream = spark.readStream.format("rate").option("rowsPerSecond", RATE).load()
        stream = stream.selectExpr("value AS id", f"value * 7919 % {KEYS} AS k")
        defer = hr.Defer(deadline=DEADLINE, state=root / "state", shards=2)
        out = hr.enrich(stream, relation, on="k", memory="8MiB", defer=defer)
        query = hr.load(
            out, root / "table", checkpoint=root / "checkpoint", trigger={"processingTime": "500 milliseconds"}
        )
        time.sleep(seconds)
        query.stop()
        hr.finish(query)
        stats = [p.stats for p in hr.progress(query) if p.batch >= 0]
    rows = sum(s.tuples_in for s in stats)
    deferred, late = sum(s.deferred for s in stats), sum(s.late for s in stats)
    longest = max((s.longest_wait for s in stats), default=0.0)
    say(f"{rows:,} rows in {len(stats)} micro-batches, {deferred:,} waited, {longest:.1f} s at most; {late} late")
    warnings = sorted({text for s in stats for text in s.warnings.values()})
    for text in warnings:
        say(f"warned: {text}")
    pages = sum(s.pages_read for s in stats) / max(1, rows)
    return Promise(rows, deferred, late, longest, pages, warnings, _faults(root, deferred, late))


def _faults(root: Path, deferred: int, late: int) -> list[str]:
    from deltalake import DeltaTable

    ids = np.sort(DeltaTable(str(root / "table")).to_pyarrow_table(columns=["id"])["id"].to_numpy())
    found = []
    if not np.array_equal(ids, np.arange(ids.size)):
        found.append(f"{ids.size:,} rows are loaded, but not each from 0 on once")
    if not deferred:
        found.append("no row waited: nothing was promised")
    if late:
        found.append(f"{late} rows left after their deadline")
    return found


def run(argv: list[str]) -> int:
    """The section of `make soak`."""
    parser = section_parser("promise", "A promised delay under a load that the machine sustains.")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(argv)

    def work(root: Path, say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
        kept = promise(root, options.seconds, say)
        return asdict(kept), kept.faults

    return run_section(options, work)
