"""Streams to sample, plain samplers to compare with, and bounds of random counts."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.splitmix import draw


def stream(n: int, times: Any = None, start: int = 0) -> pa.RecordBatch:
    """A batch of n rows, numbered from `start`, with a text and a time each."""
    numbers = np.arange(start, start + n)
    times = numbers if times is None else times
    return pa.record_batch(
        {
            "x": numbers,
            "s": pa.array([f"row {i}" for i in numbers]),
            "t": pa.array(times, pa.timestamp("ms")),
        }
    )


def cut(batch: pa.RecordBatch, sizes: Any) -> list[pa.RecordBatch]:
    """A batch in pieces of these sizes, again and again until its end."""
    out, at, i = [], 0, 0
    while at < batch.num_rows:
        out.append(batch.slice(at, sizes[i % len(sizes)]))
        at, i = at + sizes[i % len(sizes)], i + 1
    return out


def numbers(sampler: Any) -> list[int]:
    """The numbers of the rows that are in a sample."""
    return sampler.sample()["x"].to_pylist()  # type: ignore[no-any-return]


def in_time(times: list[int], late: int) -> list[tuple[int, int, int]]:
    """(row, time, now) of the rows that are not late."""
    now, out = -(10**9), []
    for row, time in enumerate(times):
        now = max(now, time)
        if now - time <= late:
            out.append((row, time, now))
    return out


def below(word: int, bound: int) -> int:
    """The number of 0..bound - 1 that a random word stands for."""
    return int(word) * bound >> 64


def word_for(rho: int, bound: int) -> int:
    """A random word that stands for rho of 1..bound."""
    return -(-(rho - 1) * 2**64 // bound)


def words(seed: int, n: int, stream_: int = 0) -> list[int]:
    return [int(w) for w in draw(seed, stream_, np.arange(n))]


def chi_square(counts: Any, drawn: int, of: int) -> float:
    """How far counts are from even, in standard deviations above the mean of the chi-square distribution that they should have.

    `drawn` of `of` were drawn each time, without replacement, so counts vary less than those of independent draws would.
    """
    counts = np.asarray(counts, np.float64)
    expected = counts.sum() / counts.size
    statistic = float(((counts - expected) ** 2).sum() / expected)
    if drawn < of:
        statistic *= (of - 1) / (of - drawn)
    freedom = counts.size - 1
    # Wilson and Hilferty: the cube root of a chi-square variable is nearly normal
    return float(((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom)))


#: Standard deviations that a normal variable exceeds once in 100,000 times: what a fair sampler stays below, with fixed seeds.
FAR = NormalDist().inv_cdf(1 - 1e-5)
