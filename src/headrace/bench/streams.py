"""The papers' synthetic streams: skewed, permuted, drifting, bursty. A stream has the same tuples every time it is opened.

A stream is a description; `open` reads it from its first tuple on. Keys are drawn in blocks of fixed size, so that the tuples do
not depend on how many are taken at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.arrays import Float64s, Int64s
from headrace.arrivals import Arrivals
from headrace.errors import BadInput, choice

KeyOrder = Literal["key", "permuted"]

KEY = "k"  # name of the join column
STREAM_BYTES = 20  # bytes of a tuple, as in [MESH], [DEF] and [XHJ]
LOW_CARDINALITY = 36_000  # distinct keys of the weather data of [MESH] and [SSIJ]
_BLOCK = 1 << 16  # keys that are drawn at a time; another size gives other streams
_NUMBERED = 16  # bytes of a tuple's key and number


class StreamCursor:
    """A position in a stream that is being read."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None
        self.taken = 0

    def take(self, rows: int) -> pa.RecordBatch:
        """Return the next `rows` tuples as one batch."""
        parts: list[pa.RecordBatch] = []
        wanted = rows
        while wanted or not parts:
            batch = next(self._batches) if self._left is None else self._left
            parts.append(batch.slice(0, wanted))
            self._left = batch.slice(wanted) if batch.num_rows > wanted else None
            wanted -= parts[-1].num_rows
        self.taken += rows
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


class Stream(ABC):
    """An endless stream of record batches."""

    tuple_bytes: int

    @abstractmethod
    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield batches from the first tuple on, without end."""

    def open(self) -> StreamCursor:
        """Start reading at the first tuple."""
        return StreamCursor(self.blocks())

    def batches(self, rows: int, batch_rows: int = _BLOCK) -> Iterator[pa.RecordBatch]:
        """Yield the first `rows` tuples in batches."""
        feed = self.open()
        for start in range(0, rows, batch_rows):
            yield feed.take(min(batch_rows, rows - start))


@dataclass(frozen=True)
class Zipf(Stream):
    """A stream of keys by a Zipf distribution: the frequency of the i-th most popular key is proportional to 1 / i ** exponent.

    Parameters
    ----------
    domain
        Number of keys, which are first to first + domain - 1.
    exponent
        0 is uniform; the papers go up to 1.
    order
        "key" if smaller keys are more popular ("NoPerm" of [SSIJ]), "permuted" if popular keys are random ("Random").
    tuple_bytes
        Bytes of a tuple: key and number take 16, padding the rest.
    seed
        Seed of the keys and of the permutation.
    first
        The smallest key.
    absent
        Share of tuples with a key below `first`, which no relation of `make_relation` has.

    Example
    -------
    >>> feed = Zipf(1000, 1.0).open()
    >>> feed.take(5).column("k").to_pylist()
    [25, 690, 1, 680, 5]
    """

    domain: int
    exponent: float = 1.0
    order: KeyOrder = "key"
    _: KW_ONLY
    tuple_bytes: int = STREAM_BYTES
    seed: int = 1
    first: int = 0
    absent: float = 0.0

    def __post_init__(self) -> None:
        choice("order", self.order, ("key", "permuted"))
        if self.domain < 1:
            raise BadInput(f"domain={self.domain} has no keys; give 1 or more")
        if not 0 <= self.exponent < float("inf"):
            raise BadInput(
                f"exponent={self.exponent!r} is not the exponent of a Zipf distribution; give 0 (even) or more"
            )
        if self.tuple_bytes < _NUMBERED:
            raise BadInput(f"tuple_bytes={self.tuple_bytes} is too small; key and number need {_NUMBERED}")
        if not 0 <= self.absent <= 1:
            raise BadInput(f"absent={self.absent!r} is not a share of the stream; give 0 to 1")

    @cached_property
    def _cumulated(self) -> Float64s:
        return cumulated(self.domain, self.exponent)

    @cached_property
    def keys_by_rank(self) -> Int64s:
        """The keys, the most popular first."""
        keys = np.arange(self.first, self.first + self.domain)
        return keys if self.order == "key" else np.random.default_rng([self.seed, 1]).permutation(keys)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield batches from the first tuple on, without end."""
        rng = np.random.default_rng(self.seed)
        number = 0
        while True:
            keys = self.draw(rng, _BLOCK)
            yield as_batch(keys, number, self.tuple_bytes)
            number += _BLOCK

    def draw(self, rng: np.random.Generator, rows: int) -> Int64s:
        """Draw keys."""
        ranks = rng.integers(0, self.domain, rows) if self.exponent == 0 else ranked(rng, self._cumulated, rows)
        keys = self.first + ranks if self.order == "key" else self.keys_by_rank[ranks]
        if self.absent:
            keys = np.where(rng.random(rows) < self.absent, self.first - 1 - ranks, keys)
        return keys

    def frequencies(self) -> pa.Table:
        """Return every key with its share of the stream, the most popular first."""
        share = np.diff(self._cumulated, prepend=0.0) / self._cumulated[-1]
        return pa.table({KEY: self.keys_by_rank, "frequency": share})


@dataclass(frozen=True)
class Drifting(Stream):
    """A stream with temporal locality: each interval draws from its own part of the domain by a Zipf distribution. [SSIJ] §VI

    Parameters
    ----------
    domain, exponent, order, tuple_bytes, seed
        As for `Zipf`.
    intervals
        Parts of the domain; the first follows the last.
    length
        Tuples of an interval.

    Example
    -------
    >>> stream = Drifting(100, intervals=2, length=3)
    >>> [b.column("k").to_pylist() for b in stream.batches(6, 3)]
    [[5, 39, 0], [89, 51, 53]]
    """

    domain: int
    intervals: int = 20
    length: int = 2_000_000
    _: KW_ONLY
    exponent: float = 1.0
    order: KeyOrder = "key"
    tuple_bytes: int = STREAM_BYTES
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.intervals <= self.domain:
            raise BadInput(f"intervals={self.intervals} do not divide {self.domain} keys; give 1 to {self.domain}")
        if self.length < 1:
            raise BadInput(f"length={self.length} is not a number of tuples; give 1 or more")

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield batches from the first tuple on, without end."""
        rng = np.random.default_rng(self.seed)
        share = self.domain // self.intervals
        part = Zipf(share, self.exponent, self.order, tuple_bytes=self.tuple_bytes, seed=self.seed)
        number = interval = 0
        while True:
            for start in range(0, self.length, _BLOCK):
                rows = min(_BLOCK, self.length - start)
                yield as_batch(interval * share + part.draw(rng, rows), number, self.tuple_bytes)
                number += rows
            interval = (interval + 1) % self.intervals


@dataclass(frozen=True)
class FileStream(Stream):
    """A stream of the rows of a Parquet file, which are repeated without end.

    Parameters
    ----------
    path
        The file.
    key
        The join column, which is renamed to `k`.
    columns
        Further columns.
    """

    path: Path
    key: str
    columns: tuple[str, ...] = ()

    @cached_property
    def tuple_bytes(self) -> int:  # type: ignore[override]
        """The mean bytes of a tuple in the first batch."""
        batch = next(self.blocks())
        size: int = round(batch.nbytes / batch.num_rows)
        return max(1, size)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield batches from the first row on, without end."""
        names = [self.key, *self.columns]
        while True:
            rows = 0
            for batch in pq.ParquetFile(self.path).iter_batches(_BLOCK, columns=names):  # files: the user's own data
                rows += batch.num_rows
                yield batch.select(names).rename_columns([KEY, *self.columns])
            if not rows:
                raise BadInput(f"{self.path} has no rows: a stream needs some")


def low_cardinality(exponent: float = 0.5, tuple_bytes: int = 32, seed: int = 1) -> Zipf:
    """Make a stream of few keys, in place of the weather data of [MESH] §5.1, where some longitudes are observed more often."""
    return Zipf(LOW_CARDINALITY, exponent, "permuted", tuple_bytes=tuple_bytes, seed=seed)


# -- arrival times ---------------------------------------------------------------------------------------------------------


class Schedule(Protocol):
    """The arrival times of a stream's tuples. The schedule repeats after `seconds`."""

    @property
    def seconds(self) -> float:
        """The length in seconds, after which the schedule repeats."""
        ...

    def by(self, seconds: float) -> int:
        """Return the number of tuples that have arrived by this time."""
        ...

    def when(self, count: int) -> float:
        """Return the time by which `count` tuples have arrived."""
        ...


@dataclass(frozen=True)
class Steady:
    """A schedule with a constant rate in tuples per second.

    Example
    -------
    >>> Steady(100.0).by(2.5), Steady(100.0).when(250)
    (250, 2.5)
    """

    rate: float
    seconds: float = 0.0  # a constant rate has no period

    def by(self, seconds: float) -> int:
        """Return the number of tuples that have arrived by this time."""
        # Slightly more, so that `by(when(count))` is at least `count` in spite of rounding.
        return int(self.rate * seconds * (1 + 1e-12) + 1e-9)

    def when(self, count: int) -> float:
        """Return the time by which `count` tuples have arrived."""
        return count / self.rate


class Bursty:
    """A schedule with bursts at every time scale and a mean rate ([XHJ] §5.1), which repeats at its end.

    Parameters
    ----------
    rate
        Mean rate in tuples per second.
    seconds
        Length of the schedule.
    seed, bias
        As for `Arrivals`.

    Example
    -------
    >>> bursty = Bursty(1000.0, seconds=60)
    >>> round(bursty.by(180.0) / 180), bursty.by(bursty.when(77)) >= 77 > bursty.by(bursty.when(77) - 1e-6)
    (1000, True)
    """

    def __init__(self, rate: float, seconds: float = 600.0, seed: int = 1, bias: float = 0.7) -> None:
        self.rate = rate
        self.seconds = seconds
        self._arrivals = Arrivals(max(1, round(rate * seconds)), seconds, seed, bias)

    def by(self, seconds: float) -> int:
        """Return the number of tuples that have arrived by this time."""
        micros, whole = round(seconds * 1e6), self._arrivals.duration
        return micros // whole * self._arrivals.total + self._arrivals.by(micros % whole)

    def when(self, count: int) -> float:
        """Return the time by which `count` tuples have arrived."""
        if count <= 0:
            return 0.0
        rounds, number = divmod(count - 1, self._arrivals.total)
        return (rounds * self._arrivals.duration + int(self._arrivals.time_of(np.array([number]))[0])) / 1e6


# -- helpers ---------------------------------------------------------------------------------------------------------------


def cumulated(domain: int, exponent: float) -> Float64s:
    """Return the sums of 1 / i ** exponent over the first ranks."""
    sums: Float64s = np.cumsum(np.arange(1, domain + 1, dtype=np.float64) ** -exponent)
    return sums


def ranked(rng: np.random.Generator, sums: Float64s, rows: int) -> Int64s:
    """Draw ranks by inversion of the distribution function, which is exact for every exponent."""
    ranks = np.searchsorted(sums, rng.random(rows) * sums[-1], side="right")
    inside: Int64s = np.minimum(ranks, sums.size - 1)
    return inside


def as_batch(keys: Int64s, number: int, tuple_bytes: int) -> pa.RecordBatch:
    """Make stream tuples of a given size: the key, a running number, and padding."""
    columns: dict[str, Any] = {KEY: keys, "number": np.arange(number, number + keys.size)}
    if tuple_bytes > _NUMBERED:
        width = tuple_bytes - _NUMBERED
        padding = pa.py_buffer(bytes(width * keys.size))
        columns["padding"] = pa.Array.from_buffers(pa.binary(width), keys.size, [None, padding])
    return pa.record_batch(columns)
