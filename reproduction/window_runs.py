"""The experiment of [PQP] chapter 9 and appendix D: streams that change, samples of their windows, and how far these are off.

The error at a snapshot is the sum of eq. 8.1 (the text calls it the mean square error) between two histograms of values: in
chapter 9 those of the results since the last snapshot, of the join over samples and of the exact one; in appendix D those of
the sample and of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.arrays import Float64s, Int64s
from headrace.sampling import Chain, Expire, FairWindow, Fifo, Reservoir, Sampler, WindowJoin, WinRes
from headrace.sampling.measures import mse_sum
from reproduction.figure import Cell, Computed
from reproduction.pqp import zipf

TUPLES = 500_000  # Table 9.1: of one stream in appendix D, of two together in chapter 9
TENTHS = 10  # the distribution changes after each
VALUES = 50  # values of a tenth; no other tenth has them
MOST_SKEW = 2.0  # of a tenth: drawn from 0 to this
SNAPSHOTS = 100
SOON = 3  # snapshots after a change of the distribution, and before the next
TURNS = 10  # batches of each side between two snapshots of a join; fewer, if they had less than LEAST_BATCH tuples
LEAST_BATCH = 25
WINDOWS = (0.02, 0.04, 0.06, 0.08, 0.1)  # parts of a stream
SAMPLES = (0.2, 0.4, 0.6, 0.8, 1.0)  # parts of a window
SAMPLERS: dict[str, type[Sampler]] = {
    "fifo": Fifo,
    "res": Reservoir,
    "expire": Expire,
    "winres": WinRes,
    "chain": Chain,
    "fair": FairWindow,
}
_METHODS: dict[str, Any] = {"res": "reservoir"}  # where WindowJoin has another name


@lru_cache(maxsize=8)
def changing(n: int, streams: int, seed: int) -> tuple[Int64s, ...]:
    """Streams of n tuples each, with the same ranges of values and the same Zipf exponents; each draws by itself."""
    rng = np.random.default_rng([9, seed])
    each = -(-n // TENTHS)
    chances = [zipf(VALUES, rng.uniform(0, MOST_SKEW)) for _ in range(TENTHS)]
    return tuple(
        np.concatenate([tenth * VALUES + rng.choice(VALUES, each, p=p) for tenth, p in enumerate(chances)])[:n]
        for _ in range(streams)
    )


@dataclass(frozen=True)
class WindowRun:
    """What was found at each snapshot."""

    errors: Float64s
    """NaN where there were no results to compare"""
    made: float | None = None
    """of a join: the part of all results that it made"""
    over_window: Float64s | None = None
    """of a join: errors of the results of as many arrivals as the window has, in the place of those since the last snapshot"""

    def measures(self) -> dict[str, float]:
        """The numbers of a run: errors in the mean and at most, and those soon after a change and before the next."""
        known = ~np.isnan(self.errors)
        errors = self.errors[known]
        place = np.arange(self.errors.size) % (self.errors.size // TENTHS)
        later = known & (np.arange(self.errors.size) >= self.errors.size // TENTHS)
        found = {
            "mse": errors.mean(),
            "largest": errors.max(),
            "spread": errors.std(),
            "soon": self.errors[later & (place < SOON)].mean(),
            "late": self.errors[later & (place >= self.errors.size // TENTHS - SOON)].mean(),
        }
        if self.made is not None and self.over_window is not None:
            found["% of results"] = 100 * self.made
            found["largest over the window"] = np.nanmax(self.over_window)
            found["mse over the window"] = np.nanmean(self.over_window)
        return {name: float(value) for name, value in found.items()}


def means(runs: list[WindowRun]) -> dict[str, Any]:
    """The mean of each measure, and the course of the first run."""
    every = [one.measures() for one in runs]
    course = [None if np.isnan(error) else float(error) for error in runs[0].errors]
    return {name: float(np.mean([one[name] for one in every])) for name in every[0]} | {"course": course}


@cache
def join_run(scale: float, window: float, sample: float, method: str, seed: int) -> WindowRun:
    """A join over samples of windows, beside the exact one."""
    made, complete = (results(scale, window, *how, seed) for how in ((sample, method), (1.0, "all")))
    steps = round(window * SNAPSHOTS)
    return WindowRun(
        _errors(complete, made),
        float(made.sum() / complete.sum()),
        _errors(_last(complete, steps), _last(made, steps)),
    )


def _errors(complete: Float64s, made: Float64s) -> Float64s:
    return np.array([mse_sum(a, b) for a, b in zip(complete, made, strict=True)])


def _last(results: Float64s, steps: int) -> Float64s:
    """The results of the last so many snapshots, at each of them."""
    all_of_them = np.cumsum(results, axis=0)
    return np.concatenate([all_of_them[:steps], all_of_them[steps:] - all_of_them[:-steps]])


@lru_cache(maxsize=16)
def results(scale: float, window: float, sample: float, method: str, seed: int) -> Float64s:
    """The number of results of each value between snapshots: [snapshot, value]."""
    sides = changing(round(TUPLES * scale) // 2, 2, seed)
    n = len(sides[0])
    turns = min(TURNS, max(1, n // SNAPSHOTS // LEAST_BATCH))
    how: dict[str, Any] = {} if method == "all" else {"sample": sample}
    op = WindowJoin(
        hr.equal("k"), window=hr.rows(round(window * n)), method=_METHODS.get(method, method), seed=seed, **how
    )
    out = np.zeros((SNAPSHOTS, TENTHS * VALUES))
    edges = np.linspace(0, n, SNAPSHOTS * turns + 1).astype(np.int64)
    for turn, (begin, end) in enumerate(pairwise(edges)):
        for side, values in zip(("left", "right"), sides, strict=True):
            keys = values[begin:end]
            counts = op.count(side, pa.record_batch({"k": keys}))  # type: ignore[arg-type]
            out[turn // turns] += np.bincount(keys, counts, TENTHS * VALUES)
    return out


@cache
def sample_run(scale: float, window: float, sample: float, method: str, seed: int, ordered: bool = False) -> WindowRun:
    """A sample of the window of one stream."""
    (values,) = changing(round(TUPLES * scale), 1, seed)
    values = np.sort(values) if ordered else values
    n, size = values.size, round(window * values.size)
    s = SAMPLERS[method](round(sample * size), window=hr.rows(size), seed=seed)
    errors = []
    edges = np.linspace(0, n, SNAPSHOTS + 1).astype(np.int64)
    for begin, end in pairwise(edges):
        s.insert(pa.record_batch({"k": values[begin:end]}))
        of_window, of_sample = (
            np.bincount(some, minlength=TENTHS * VALUES)
            for some in (values[max(0, end - size) : end], np.asarray(s.sample()["k"]))
        )
        errors.append(mse_sum(of_window, of_sample))
    return WindowRun(np.array(errors))


Run = Callable[[float, str, int], WindowRun]


def cells(run: Run, methods: Mapping[str, int], samples: tuple[float, ...] = SAMPLES) -> list[Cell]:
    """A cell for each method and size of the sample: means over so many seeds, and the course of the first run."""

    def at(sample: float, method: str, seeds: int) -> Callable[[Path], Mapping[str, Any]]:
        return lambda directory: means([run(sample, method, seed) for seed in range(seeds)])

    return [Computed(name, sample, at(sample, name, seeds)) for name, seeds in methods.items() for sample in samples]
