"""The experiment that the chapters of [PQP] share: two streams with arrival times, and a progressive join that takes them in.

On the virtual clock tuple i arrives at i times the gap, reads and writes take the time of the simulated disk headrace.cost.HDD,
and the join itself takes none; so the curves are the same on every machine. In real time tuples come as fast as the join takes
them: with a gap of a millisecond a machine of today would wait nearly all of the time, and the curve would be the virtual one.
The same tuples meet the same policy with the same results, and the system's clock tells how long that took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.conditions import Condition
from headrace.cost import HDD, disk_of
from headrace.progressive import FlushPolicy, Partitioning, ProgressiveJoin
from reproduction.checks import AtMost, Check, Faster, Tracks
from reproduction.figure import WHOLE, Cell, Clock, Computed

GAP = 1e-3  # seconds between two tuples, Table 4.1
POINTS = 10  # points of a curve over time
Numbers = Any  # arrays
Moment = dict[str, float]


@dataclass(frozen=True)
class Streams:
    """The tuples of two streams in the order in which they arrive."""

    side: Numbers
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.side.size)

    def chunk(self, begin: int, end: int) -> list[tuple[Any, pa.RecordBatch]]:
        """The tuples of each side among those from `begin` to `end`."""
        side = self.side[begin:end]
        part = self.rows.slice(begin, end - begin)
        return [(name, part.filter(pa.array(side == number))) for number, name in enumerate(("left", "right"))]


@dataclass(frozen=True)
class Setting:
    """The settings of a run: streams, condition, partitioning and memory."""

    streams: Callable[[], Streams]
    """makes the streams, when a run begins"""
    condition: Condition
    partitioning: Callable[[], Partitioning]
    share: float
    """the share of all tuples that fits memory"""
    memory: int = 1 << 28
    """bytes of the budget, enough for those tuples; the clean-up uses the rest as working memory"""
    chunks: int = 400
    """the number of chunks that arrivals are divided into, of at least 20 tuples each"""


@dataclass(frozen=True)
class Course:
    """The course of a run, chunk by chunk. Arrays have an item a chunk."""

    arrived: Numbers
    at: Numbers
    """seconds since the run began"""
    results: Numbers
    cleaned: float
    """seconds that the clean-up took; 0 if there was none"""
    finishing: Numbers
    """seconds and results of the clean-up so far, with an item for each batch of results"""
    total: int
    """the number of all results"""
    facts: Mapping[str, Any]

    def after(self, share: float) -> Moment:
        """The state of the run when this share of the tuples had arrived."""
        return self._moment(np.searchsorted(self.arrived, round(share * self.arrived[-1])))

    def by(self, seconds: float) -> Moment:
        """The state of the run this many seconds after its beginning, interpolated within a chunk."""
        return self._moment(np.interp(seconds, self.at, np.arange(self.at.size)))

    def until(self, share: float) -> Moment:
        """The state of the run when it had given this share of all its results, those of the clean-up included."""
        at, results = (np.append(*both) for both in zip((self.at, self.results), self.finishing, strict=True))
        wanted = share * self.total
        return {"results": wanted, "seconds": float(np.interp(wanted, results, at))}

    def end(self) -> Moment:
        """The number of all results, and the seconds until then, if there was a clean-up."""
        return {"total": float(self.total), WHOLE: float(self.at[-1] + self.cleaned)} if self.cleaned else {}

    def _moment(self, chunk: Any) -> Moment:
        arrived, seconds, results = (
            float(np.interp(chunk, np.arange(self.at.size), column)) for column in (self.arrived, self.at, self.results)
        )
        return {
            "results": results,
            "seconds": seconds,
            "results a second": results / seconds,
            "microseconds a tuple": 1e6 * seconds / arrived,
        }


def course(setting: Setting, flush: FlushPolicy, *, clean: bool = False, clock: Clock = "virtual") -> Course:
    """Run a join: take in two streams in turn, then clean up if `clean` is set, or always in real time, to measure it."""
    streams, disk, real = setting.streams(), disk_of(HDD), clock == "real"
    join = ProgressiveJoin(
        setting.condition,
        setting.memory,
        flush,
        partitioning=setting.partitioning(),
        capacity=round(setting.share * len(streams)),
        disk=None if real else disk,
    )
    now = time.perf_counter if real else disk.clock.now
    size, begun, sent = max(20, len(streams) // setting.chunks), now(), 0
    seen = []
    for begin in range(0, len(streams), size):
        end = min(len(streams), begin + size)
        if not real:
            disk.clock.advance(max(0.0, end * GAP - now()))
        for side, rows in streams.chunk(begin, end):
            sent += sum(out.num_rows for out in join.insert(side, rows))
        seen.append((end, now() - begun, sent))
    ended, total, finishing = now(), sent, []
    for out in join.finish() if clean or real else ():
        total += out.num_rows
        finishing.append((now() - begun, total))
    stats = join.stats
    facts = {name: getattr(stats, name) for name in ("flushes", "flushed", "pages_written", "pages_read", "seeks")}
    arrived, at, results = (np.array(column) for column in zip(*seen, strict=True))
    return Course(arrived, at, results, now() - ended, np.array(finishing).reshape(-1, 2).T, total, facts)


def mean(courses: list[Course]) -> Course:
    """The mean course of runs with the same number of tuples."""
    at, results = (np.mean([getattr(one, name) for one in courses], axis=0) for name in ("at", "results"))
    facts = {name: float(np.mean([one.facts[name] for one in courses])) for name in courses[0].facts}
    cleaned, total = (float(np.mean([getattr(one, name) for one in courses])) for name in ("cleaned", "total"))
    return Course(courses[0].arrived, at, results, cleaned, np.empty((2, 0)), round(total), facts)


SEE = "As on the page of the virtual clock, which has the same results; what is new are the seconds."
MOST_TIME = (
    0.2e6 * GAP
)  # microseconds a tuple in real time: a fifth of the gap, so that the join waits most of the time


def in_real_time(*rates: Check, whole: tuple[Check, ...] = ()) -> dict[str, Any]:
    """How a figure of results over time differs when seconds are real.

    `rates` compares results a second when all has arrived, `whole` the seconds until the clean-up is over.
    """
    return {
        "x": "% of the data that has arrived",
        "over": "seconds",
        "also": {
            "microseconds a tuple": (AtMost(MOST_TIME),),
            "results a second": rates,
            "total": (Tracks("rrpj", "rpj", 0.0), Tracks("foresight", "rpj", 0.0)),
            WHOLE: whole or (Faster("rrpj", "rpj", at_least=0.7, at_most=1.4, at=100),),
        },
        "differs": SEE,
    }


Runs = Callable[[str], Course]


def runs(make: Callable[[str], Course]) -> Runs:
    """Return a function that makes the course of each name once, and keeps it while a figure is measured."""
    return lru_cache(maxsize=None)(make)


def against_time(series: tuple[str, ...], run: Runs, seconds: float, clock: Clock) -> list[Cell]:
    """The cells of curves of results against virtual time; in real time, against the share of data that has arrived."""
    if clock == "real":
        return against_arrivals(series, run)
    return _curves(series, [seconds * point / POINTS for point in range(1, POINTS + 1)], Course.by, run)


def against_arrivals(series: tuple[str, ...], run: Runs) -> list[Cell]:
    """The cells of curves of results, and of the seconds until then, against the percentage of data that has arrived."""
    return _curves(
        series, [100 * point / POINTS for point in range(1, POINTS + 1)], lambda one, x: one.after(x / 100), run
    )


def against_results(series: tuple[str, ...], run: Runs) -> list[Cell]:
    """The cells of curves of results against time, those of the clean-up included; x is the percentage of all results."""
    return _curves(
        series, [100 * point / POINTS for point in range(1, POINTS + 1)], lambda one, x: one.until(x / 100), run
    )


def _curves(
    series: tuple[str, ...], xs: list[float], value: Callable[[Course, float], Moment], run: Runs
) -> list[Cell]:
    def at(name: str, x: float) -> Callable[[Path], Mapping[str, Any]]:
        def compute(directory: Path) -> dict[str, Any]:
            one = run(name)
            return {**value(one, x), **one.end(), "cleaned": one.cleaned, **one.facts}

        return compute

    return [Computed(name, x, at(name, x)) for name in series for x in xs]


def real_setting(chapter: str) -> str:
    """The introduction of the page of a chapter in real time."""
    return f"""The figures of [the chapter on a virtual clock](pqp-{chapter}.md), with the same tuples, policies and memory, in
        the seconds of the machine at hand. Tuples come as fast as the join takes them: if they came one a millisecond, as in the
        text, the join would wait for them most of the time (a check of every figure over time: a tuple takes less than
        a fifth of that), and the curves would be those of the virtual clock. Segments are files of the machine's own disk, in its
        directory for temporary files, written and read through the page cache. The last line of a table is the clean-up,
        after which all policies have the same results. When so many tuples have come, the results are the same on both
        clocks, and so are the checks of them. Beside these, what the text says of results is checked of results a second: a
        policy that keeps the right tuples, and takes too long to choose them, fails there. Where that does not hold, it
        loses in time what it gains in results, or chance decides, since seconds differ by a tenth from run to run: a tuple
        takes 10 to 100 microseconds here, and a thousand pass in the text until the next one comes."""


def zipf(values: int, exponent: float) -> Numbers:
    """The probabilities of a Zipf distribution, by rank."""
    weights = 1 / np.arange(1, values + 1) ** exponent
    return weights / weights.sum()
