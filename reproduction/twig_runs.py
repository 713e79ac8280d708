"""The experiment of [PQP] §7.2: two XML documents arrive, twigs give their fragments, and a progressive join takes these in.

Documents are made as bytes, tokenised and matched; what is kept of a fragment is its key and one more of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.arrays import Float64s
from headrace.progressive import RPJ, RRPJ, FlushPolicy, HashPartitioning, PartitionStats, Random
from headrace.xml import Twig
from reproduction.figure import Cell, Computed
from reproduction.pqp import Course, Setting, Streams, course

PARTITIONS, MEMORY, FLUSH = 1024, 0.1, 0.1  # Table 7.1; memory is a part of the data, and a flush a part of memory
SEEDS = (1, 2)  # of documents and of draws; curves are means
CHUNK = 1 << 18  # bytes of a document that come together
PERCENT = tuple(range(10, 101, 10))


class LiteralTwigRPJ(FlushPolicy):
    """Twig-RPJ to the letter of the text: the value of a partition is the number of fragments in it, in memory that is.

    `RPJ` counts what has arrived. A partition that was just flushed has the smallest value here, so its partner goes next.
    """

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return the value of the partner."""
        return np.asarray(stats.held[::-1] / max(1, stats.arrived.sum()))


POLICIES: Mapping[str, type[FlushPolicy]] = {
    "tnj": RRPJ,
    "twig-rpj": RPJ,
    "twig-rpj-literal": LiteralTwigRPJ,
    "random": Random,
}


@dataclass(frozen=True)
class Fragments:
    """The fragments of a document in the order in which they come, and the size of the document."""

    rows: pa.RecordBatch
    bytes: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)


@dataclass
class Chunks:
    """A document in chunks, as a file or a socket gives them; its bytes are counted as they pass."""

    parts: Iterator[bytes]
    bytes: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[bytes]:
        held = bytearray()
        for part in self.parts:
            held += part
            if len(held) >= CHUNK:
                self.bytes += len(held)
                yield bytes(held)
                held.clear()
        self.bytes += len(held)
        yield bytes(held)


def match(document: Iterator[bytes], twig: str, key: str, value: str) -> Fragments:
    """Match a twig with a document: two of a fragment's columns are kept, as `key` and `value`."""
    chunks = Chunks(document)
    found = [batch.select([key, value]).rename_columns(["key", "value"]) for batch in Twig(twig).fragments(chunks)]
    (rows,) = pa.Table.from_batches(found).combine_chunks().to_batches()
    return Fragments(rows, chunks.bytes)


@dataclass(frozen=True)
class Pair:
    """Two documents that arrive together: a fragment of each in turn until one has ended, or so that both end together."""

    left: Fragments
    right: Fragments
    turns: bool = True

    def streams(self) -> Streams:
        """The fragments of both in the order in which they come."""
        sizes = [len(self.left), len(self.right)]
        place = [(2 * np.arange(n) + side) / (1 if self.turns else n) for side, n in enumerate(sizes)]
        order = np.argsort(np.concatenate(place), kind="stable")
        rows = pa.concat_batches([self.left.rows, self.right.rows])
        return Streams(np.repeat([0, 1], sizes)[order], rows.take(pa.array(order)))


Make = Callable[[int, Path], Pair]  # of a seed, and the directory that made data are kept in


def curves(
    variants: Mapping[str, Make], at: tuple[int, ...] = PERCENT, *, seeds: tuple[int, ...] = SEEDS, chunks: int = 200
) -> list[Cell]:
    """The cells of results against the percentage of fragments that has arrived; the mean over seeds.

    Each variant of the documents is a value of the cells by its name; the one on the curves is called "results". Fragments come
    in so many chunks: with 100 a chunk is as large as a flush.
    """

    @cache
    def pair(variant: str, seed: int, directory: Path) -> Pair:
        return variants[variant](seed, directory)

    @cache
    def run(variant: str, policy: str, seed: int, directory: Path) -> Course:
        setting = Setting(
            lambda: pair(variant, seed, directory).streams(),
            hr.equal("key"),
            lambda: HashPartitioning(hr.equal("key"), PARTITIONS),
            MEMORY,
            chunks=chunks,
        )
        return course(setting, POLICIES[policy](share=FLUSH, seed=seed))

    def compute(policy: str, percent: int, directory: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for variant in variants:
            runs = [run(variant, policy, seed, directory).after(percent / 100)["results"] for seed in seeds]
            found |= {variant: float(np.mean(runs)), f"{variant}, apart": (max(runs) - min(runs)) / max(1.0, max(runs))}
        first = pair("results", seeds[0], directory)
        sizes = {"fragments": len(first.left) + len(first.right)}
        return found | sizes | {"megabytes": (first.left.bytes + first.right.bytes) / 1e6}

    def cell(policy: str, percent: int) -> Cell:
        return Computed(policy, percent, lambda directory: compute(policy, percent, directory))

    return [cell(policy, percent) for policy in POLICIES for percent in at]
