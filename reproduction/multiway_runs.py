"""The experiment of [PQP] §7.2.6: streams that have a part of the same authors, and how often a multi-way join probes.

Only what is counted is measured: probes, results, and a time of so much a tuple and so much a probe.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.progressive import MultiWayJoin

AUTHORS = 20_000  # of the reference stream
PAGE = 31  # fragments of a stream that come together: a page of Table 7.1
SELECTIVITIES = {3: (1.0, 0.6, 0.1), 4: (1.0, 0.8, 0.4, 0.1), 5: (1.0, 0.8, 0.6, 0.4, 0.1)}  # the first: the reference
TUPLE_TIME = PROBE_TIME = 1e-3  # milliseconds that are counted for an arriving tuple, and for a probe


@dataclass(frozen=True)
class MultiWayRun:
    """What a join had done after each page of arrivals."""

    arrived: Int64s
    probes: Int64s
    results: Int64s
    partial: tuple[int, ...]
    """partial results of each stream in the end"""

    def end(self) -> dict[str, float]:
        """The numbers of the whole run."""
        return {
            "probes": float(self.probes[-1]),
            "arrived": float(self.arrived[-1]),
            "results": float(self.results[-1]),
        } | {f"partial.{stream}": float(number) for stream, number in enumerate(self.partial)}

    def until(self, percent: float) -> dict[str, float]:
        """The time that is counted until this part of the results was there, and the probes until then."""
        wanted = percent / 100 * self.results[-1]
        arrived, probes = (float(np.interp(wanted, self.results, column)) for column in (self.arrived, self.probes))
        return {"milliseconds": TUPLE_TIME * arrived + PROBE_TIME * probes, "probes": probes, "results": float(wanted)}


def streams(selectivities: tuple[float, ...], scale: float) -> list[Int64s]:
    """The authors of each stream, in a random order: each is there with the probability that is its selectivity."""
    rng = np.random.default_rng([7, 12])
    authors = np.arange(round(AUTHORS * scale))
    return [rng.permutation(authors[rng.random(authors.size) < part]) for part in selectivities]


@cache
def run(m: int, rotated: int, probing: Any, scale: float) -> MultiWayRun:
    """Join m streams, in the order of falling selectivities, turned by so many places; pages come in a random order."""
    selectivities = SELECTIVITIES[m][rotated:] + SELECTIVITIES[m][:rotated]
    of_streams = streams(selectivities, scale)
    pages = [-(-keys.size // PAGE) for keys in of_streams]
    turns = np.random.default_rng([7, m]).permutation(np.repeat(np.arange(m), pages)).tolist()
    given = selectivities if probing == "apriori" else None
    op = MultiWayJoin("author", m, "256MiB", probing, selectivity=given)
    at, seen = [0] * m, [(0, 0, 0)]
    for stream in turns:
        keys = of_streams[stream][at[stream] : at[stream] + PAGE]
        at[stream] += PAGE
        for _ in op.insert(stream, pa.record_batch({"author": keys})):
            pass
        seen.append((sum(op.stats.tuples_in), int(op.stats.probes.sum()), op.stats.results))
    arrived, probes, results = (np.array(column) for column in zip(*seen, strict=True))
    return MultiWayRun(arrived, probes, results, tuple(op.stats.partial.tolist()))
