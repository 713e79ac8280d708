"""The experiment of [PQP] chapter 8: two streams, an approximate join in a part of the memory, and what it has made over time.

Time is counted, not taken: an arriving tuple costs TUPLE, and each tuple that the text's algorithm compares it with COMPARE. (The
join itself finds partners by an index; `stats.scanned` says what a scan would have read.)
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.arrays import Float64s, Int64s
from headrace.sampling import ApproximateJoin
from headrace.sampling.measures import jensen_shannon, mse_sum, quantity

COMPARE, TUPLE = 1e-8, 1e-6  # seconds to compare two tuples, and for whatever else a tuple costs
EPOCHS = 100  # states of a run that are kept
ROUNDS = 1_000  # times that the sides take turns: a batch has a thousandth of a side
EXTREME_ROUNDS = 100  # the same of the extreme data, of which there are many runs
LEAST_BATCH = 10  # tuples of a batch at a small scale
SKEWED, VALUES = 100_000, 50  # Table 8.1: tuples of both streams together; values 1 to 50, Zipf 1
WEATHER, LATITUDES, LONGITUDES = 2_074_948, 18, 36  # reports of both months; cells of the grid
REPORTS = 240  # times at which all stations report: every three hours for 30 days
METHODS: dict[str, dict[str, Any]] = {
    "arrpj": {"method": "rrpj"},
    "arrpj by halves": {"method": "rrpj", "share": 0.5},
    "prob": {"method": "prob"},
    "probhash": {"method": "probhash"},
    "raj": {"method": "raj"},
    "rajhash": {"method": "rajhash"},
    "rajhash anywhere": {"method": "rajhash", "replacement": "anywhere"},
}


def streams(name: str, scale: float, seed: int) -> tuple[Int64s, Int64s]:
    """The join values of both streams in the order of arrival; the sides take turns."""
    rng = np.random.default_rng([8, seed])
    if name == "weather":
        return _reports(round(WEATHER * scale) // 2, rng), _reports(round(WEATHER * scale) // 2, rng)
    n = round(SKEWED * scale) // 2
    if name == "skewed":
        weights = 1 / np.arange(1, VALUES + 1)
        left, right = (rng.choice(VALUES, n, p=weights / weights.sum()) + 1 for _ in range(2))
        return left, right
    left, right = np.full(n, 2), np.full(n, 1)
    left[0], right[0] = 1, 2  # Fig. 2.1: b1 = 1 comes once on the left, b2 = 2 once on the right
    if name == "softer":
        left[1:][rng.random(n - 1) < 0.5] = 1
        right[1:][rng.random(n - 1) < 0.5] = 2
    return left, right


@lru_cache(maxsize=1)
def station_cells() -> Int64s:
    """The grid cell of each station: where airports are, and one in ten anywhere, for ships."""
    text = (resources.files("airportsdata") / "airports.csv").read_text("utf-8")
    places = np.array([(float(row["lat"]), float(row["lon"])) for row in csv.DictReader(text.splitlines())])
    rng = np.random.default_rng(85)
    places = places[rng.choice(len(places), 4_000, replace=False)]
    ships = np.column_stack([rng.uniform(-70, 70, 400), rng.uniform(-180, 180, 400)])
    at = np.vstack([places, ships])
    row = np.clip((at[:, 0] + 90) // (180 / LATITUDES), 0, LATITUDES - 1)
    column = np.clip((at[:, 1] + 180) // (360 / LONGITUDES), 0, LONGITUDES - 1)
    return np.sort((row * LONGITUDES + column).astype(np.int64))


def _reports(n: int, rng: Any) -> Int64s:
    """Reports of stations: all report at each of the times, in the order of their cells, and some leave one out."""
    cells = station_cells()
    each = -(-n // REPORTS)
    return np.concatenate([np.sort(rng.choice(cells, each)) for _ in range(REPORTS)])[:n]


@dataclass(frozen=True)
class ApproximateRun:
    """What a join has made, at each epoch. Arrays of frequencies have a row for each epoch and a column for each value."""

    arrived: Float64s
    """the share of the tuples that have come"""
    seconds: Float64s
    made: Float64s
    complete: Float64s
    """the results that the complete join of what has come has"""
    longest: float
    """seconds that a run takes in which every tuple is compared with half of memory"""

    def at(self, epoch: int) -> dict[str, float]:
        """Every measure at an epoch; those that are not known yet are left out."""
        final, now, made = self.complete[-1], self.complete[epoch], self.made[epoch]
        found = {
            "% of results": 100 * quantity(final, made),
            "divergence": jensen_shannon(final, made),
            "divergence now": jensen_shannon(now, made),
            "mse": mse_sum(final, made),
            "mse now": mse_sum(now, made),
            "seconds": float(self.seconds[epoch]),
        }
        return {name: value for name, value in found.items() if not np.isnan(value)}

    def end(self) -> dict[str, float]:
        """Every measure at the end."""
        return self.at(len(self.arrived) - 1)

    def by(self, percent: float) -> dict[str, float]:
        """Every measure when this share of the longest run's time was over: at the last epoch until then."""
        return self.at(max(0, int(np.searchsorted(self.seconds, percent / 100 * self.longest, "right")) - 1))

    def after(self, percent: float) -> dict[str, float]:
        """Every measure when this share of the tuples had come."""
        return self.at(int(np.searchsorted(self.arrived, percent / 100 - 1e-9)))

    def histogram(self) -> Float64s:
        """The normalised frequency of each value among the results."""
        return self.made[-1] / self.made[-1].sum()


@lru_cache(maxsize=4096)
def run(
    data: str, scale: float, method: str, percent: float, seed: int, quality: float | None = None
) -> ApproximateRun:
    """Join two streams in memory for a percentage of all tuples."""
    sides = streams(data, scale, seed)
    n = len(sides[0])
    options = METHODS[method] if quality is None else {"method": "mixture", "quality": quality}
    tuples = max(2, round(percent / 100 * 2 * n))
    op = ApproximateJoin(hr.equal("k"), tuples=tuples, seed=seed, **options)
    values = int(max(side.max() for side in sides)) + 1
    batch = max(LEAST_BATCH, n // (EXTREME_ROUNDS if data == "extreme" else ROUNDS))
    every = -(-n // batch) / EPOCHS
    came, made = np.zeros((2, values)), np.zeros(values)
    seen = []
    for turn, begin in enumerate(range(0, n, batch)):
        for number, side in enumerate(sides):
            keys = side[begin : begin + batch]
            counts = op.count(("left", "right")[number], pa.record_batch({"k": keys}))
            made = made + np.bincount(keys, counts, values)
            came[number] += np.bincount(keys, minlength=values)
        end = begin + batch >= n
        if end or int((turn + 1) / every) > int(turn / every):
            seconds = COMPARE * sum(op.stats.scanned) + TUPLE * sum(op.stats.tuples_in)
            seen.append((min(1.0, (begin + batch) / n), seconds, made, came[0] * came[1]))
    arrived, seconds_, all_made, complete = (np.array(column) for column in zip(*seen, strict=True))
    return ApproximateRun(arrived, seconds_, all_made, complete, 2 * n * (COMPARE * tuples / 2 + TUPLE))


def mean_of(found: list[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each measure that all runs have."""
    shared = set.intersection(*(set(one) for one in found))
    return {name: float(np.mean([one[name] for one in found])) for name in found[0] if name in shared}
