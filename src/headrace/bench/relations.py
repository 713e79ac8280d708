"""Synthetic relations with the sizes and distributions of the papers' data sets, made once and kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.bench.streams import KEY, FileStream, Zipf, cumulated, ranked
from headrace.errors import BadInput, HeadraceError
from headrace.files import exists, replace
from headrace.relation import Relation
from headrace.relation.disk import Disk, DiskKind

RELATION_BYTES = 120  # bytes of a tuple, as in [MESH], [DEF] and [XHJ]
_BLOCK = 1 << 17  # rows that are generated at a time
_KEY_BYTES = 8


@dataclass(frozen=True)
class RelationSpec:
    """The specification of a synthetic relation.

    Parameters
    ----------
    rows
        Number of tuples.
    tuple_bytes
        Bytes of a tuple, including 8 of the key.
    K
        Tuples per key; keys are 0 to rows / K - 1.
    z_R
        Instead of K, the exponent of a Zipf distribution over the domain that keys are drawn from ([MESH] §5.1).
    domain
        Number of keys to draw from; `rows` by default.
    popularity
        Store tuples by the frequency of their keys in this stream (for X-HYBRIDJOIN), and not by key.
    page_size, fill, seed
        Of the pages, and of the random numbers.
    """

    rows: int
    _: KW_ONLY
    tuple_bytes: int = RELATION_BYTES
    K: int = 1
    z_R: float | None = None
    domain: int | None = None
    popularity: Zipf | None = None
    page_size: str = "8KiB"
    fill: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.rows < 1 or self.K < 1 or self.rows % self.K:
            raise BadInput(f"rows={self.rows} cannot be K={self.K} tuples of each key; give a multiple of K, 1 or more")
        if self.tuple_bytes < _KEY_BYTES + 1:
            raise BadInput(
                f"tuple_bytes={self.tuple_bytes} leaves nothing beside the key; give {_KEY_BYTES + 1} or more"
            )
        if self.z_R is not None and self.K != 1:
            raise BadInput(f"K={self.K} and z_R={self.z_R} cannot both say how often a key occurs; give one of them")

    @property
    def name(self) -> str:
        """A directory name that is different for each specification."""
        parts = [f"r{self.rows}", f"t{self.tuple_bytes}", f"p{self.page_size}", f"f{self.fill:g}"]
        parts += [f"K{self.K}"] if self.K != 1 else []
        parts += [f"z{self.z_R:g}-d{self.domain or self.rows}-s{self.seed}"] if self.z_R is not None else []
        if self.popularity:
            p = self.popularity
            parts += [f"by-{p.order}{p.seed}-d{p.domain}-e{p.exponent:g}"]
        return "-".join(parts)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Generate the rows."""
        rng = np.random.default_rng([self.seed, 2])
        sums = None if self.z_R is None else cumulated(self.domain or self.rows, self.z_R)
        width = self.tuple_bytes - _KEY_BYTES
        for start in range(0, self.rows, _BLOCK):
            n = min(_BLOCK, self.rows - start)
            keys = np.arange(start, start + n) // self.K if sums is None else ranked(rng, sums, n)
            payload = pa.Array.from_buffers(pa.binary(width), n, [None, pa.py_buffer(_payload(start, n, width))])
            yield pa.record_batch({KEY: keys, "payload": payload})


def make_relation(
    directory: str | Path,
    made: RelationSpec,
    *,
    disk: DiskKind | Disk = "buffered",
    progress: Callable[[int, int | None], None] | None = None,
) -> Relation:
    """Open the relation, which is made first if the directory does not have it; `progress` is told the rows done and the total.

    Example
    -------
    >>> import tempfile
    >>> rel = make_relation(tempfile.mkdtemp(), RelationSpec(10_000))
    >>> rel.num_rows, rel.num_pages
    (10000, 154)
    """
    path = Path(directory) / made.name
    if not exists(path):
        blocks = made.blocks()
        first = next(blocks)

        def every() -> Iterator[pa.RecordBatch]:
            yield first
            yield from blocks

        by: dict[str, Any] = {}
        if made.popularity:
            by = {"order": "frequency", "frequencies": made.popularity.frequencies()}
        data = pa.RecordBatchReader.from_batches(first.schema, every())
        by |= {"page_size": made.page_size, "fill": made.fill}
        told = progress and (lambda done, total: progress(done, made.rows))  # a reader does not know how many come
        # With one shard, a scan is one pass over one file, as in the papers.
        try:
            Relation.create(path, data, KEY, shards=1, progress=told, **by).close()
        except HeadraceError:
            if not exists(path):  # another process may have made it meanwhile
                raise
    return Relation.open(path, disk=disk)


def _payload(start: int, rows: int, width: int) -> bytes:
    """Return payloads that differ between rows: the row's number, repeated."""
    words = np.arange(start, start + rows, dtype=np.int64).repeat(-(-width // 8)).reshape(rows, -1)
    return np.ascontiguousarray(words.view(np.uint8).reshape(rows, -1)[:, :width]).tobytes()


def tpch(
    directory: str | Path, scale: float = 1.0, *, disk: DiskKind | Disk = "buffered"
) -> tuple[Relation, FileStream]:
    """Make TPC-H data with tpchgen-cli: Part as a relation, and LineItem as the stream of its sales. [SSIJ] §VI.B"""
    parts, sales = (tpch_table(directory, table, scale) for table in ("part", "lineitem"))
    path = parts.with_suffix("")
    if not exists(path):
        import pyarrow.dataset

        part = pyarrow.dataset.dataset(parts)
        names = [KEY if name == "p_partkey" else name for name in part.schema.names]
        batches = (batch.rename_columns(names) for batch in part.to_batches())
        schema = pa.schema([f.with_name(n) for f, n in zip(part.schema, names, strict=True)])
        Relation.create(path, pa.RecordBatchReader.from_batches(schema, batches), KEY, shards=1).close()
    stream = FileStream(sales, "l_partkey", ("l_orderkey", "l_quantity"))
    return Relation.open(path, disk=disk), stream


def tpch_table(directory: str | Path, table: str, scale: float) -> Path:
    """Make a table of TPC-H with tpchgen-cli, or find it; return the Parquet file."""
    root = Path(directory) / f"tpch-{scale:g}"
    file = root / f"{table}.parquet"
    if not exists(file):
        _generate(root, table, scale)
    return file


def _generate(root: Path, table: str, scale: float) -> None:
    beside = Path(sys.executable).parent / "tpchgen-cli"
    command = str(beside) if exists(beside) else shutil.which("tpchgen-cli")
    if command is None:
        raise BadInput('TPC-H data is made by tpchgen-cli, which is not installed; run: pip install "headrace[bench]"')
    draft = root / "draft"
    done = subprocess.run(
        [command, "parquet", "-s", f"{scale:g}", "--tables", table, "--output-dir", str(draft), "--overwrite"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BadInput(f"tpchgen-cli could not make {table} at scale {scale:g}: {done.stderr.strip()}")
    replace(draft / f"{table}.parquet", root / f"{table}.parquet")
