"""A Delta table as a source of relations, of which a refresh reads only what changed since the last version.

If the table writes a change data feed, that is read. Otherwise the files of two versions are compared: rows of added files are
upserts, and keys of removed files are deleted unless an added file has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadInput, missing_extra
from headrace.paths import local_path
from headrace.sources.tables import NOTE, TableChanges
from headrace.units import format_size

_FEED = "delta.enableChangeDataFeed"
_KIND = "_change_type"
_GONE = ("delete", "update_preimage")  # change types of deleted rows; an update may have changed the key


@dataclass(frozen=True)
class DeltaSource:
    """A Delta table as a source; see `delta`."""

    path: str
    columns: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The table's path."""
        return f"delta {self.path}"

    def snapshot(self) -> tuple[pa.RecordBatchReader, dict[str, Any]]:
        """Return all rows of the latest version."""
        table = self._open()
        files = _Files(table)
        schema = self._schema(files)
        batches = files.batches(files.fragments, schema)
        return pa.RecordBatchReader.from_batches(schema, batches), {
            NOTE: {"name": self.name, "version": table.version()}
        }

    def latest(self) -> int:
        """Return the number of the latest version."""
        return int(self._open().version())

    def changes(self, after: int, until: int, memory: int) -> TableChanges | None:
        """Return the changes after a version: of as many versions as fit into `memory`, and of one at least."""
        if after >= until:
            return None
        rows: list[pa.Table] = []
        deleted: list[pa.ChunkedArray] = []
        size, version = 0, after
        while version < until and (size == 0 or size < memory):
            table = self._open(version + 1)
            feed = table.metadata().configuration.get(_FEED) == "true"
            found, gone = self._feed(table) if feed else self._compared(version, table, memory)
            if rows and found.schema != rows[0].schema:
                break  # the columns changed: earlier changes are applied first, and the next call reports it
            rows.append(found)
            deleted.append(gone)
            size += found.nbytes
            version += 1
        return TableChanges(
            pa.concat_tables(rows), pa.chunked_array([c for g in deleted for c in g.chunks], pa.bool_()), version
        )

    def _feed(self, table: Any) -> tuple[pa.Table, pa.ChunkedArray]:
        """Read the change data feed of one version: deleted rows, then inserted ones."""
        version = table.version()
        found = pa.table(table.load_cdf(starting_version=version, ending_version=version))
        gone = pc.is_in(found[_KIND].cast(pa.string()), pa.array(_GONE))
        schema = self._schema(_Files(table))
        rows = found.select(schema.names).cast(schema)
        return _in_order(rows.filter(gone), rows.filter(pc.invert(gone)))

    def _compared(self, before: int, table: Any, memory: int) -> tuple[pa.Table, pa.ChunkedArray]:
        """Compare the files of a version with those of the one before it."""
        old, new = _Files(self._open(before)), _Files(table)
        schema = self._schema(new)
        parts = []
        for files, names in ((old, old.fragments.keys() - new.fragments), (new, new.fragments.keys() - old.fragments)):
            held: list[pa.RecordBatch] = []
            size = 0
            for batch in files.batches(sorted(names), schema):
                held.append(batch)
                size += batch.nbytes
                if size > memory:
                    raise BadInput(
                        f"version {table.version()} of {self.path} replaces files of over {format_size(memory)}; give refresh"
                        f" more memory, set {_FEED} on the table, or create the relation anew"
                    )
            parts.append(pa.Table.from_batches(held, schema))
        return _in_order(*parts)

    def _schema(self, files: _Files) -> pa.Schema:
        known = files.data.schema
        for name in self.columns or ():
            if name not in known.names:
                raise BadInput(
                    f"columns names {name!r}, which {self.path} does not have; it has {', '.join(known.names)}"
                )
        return pa.schema([known.field(name) for name in self.columns or known.names])

    def _open(self, version: int | None = None) -> Any:
        try:
            from deltalake import DeltaTable
        except ModuleNotFoundError as error:
            raise missing_extra("hr.delta", error) from None
        if not DeltaTable.is_deltatable(self.path):
            raise BadInput(f"there is no Delta table at {self.path}; give the directory that has its _delta_log")
        return DeltaTable(self.path, version=version)


class _Files:
    """The files of a version."""

    def __init__(self, table: Any) -> None:
        self.data = table.to_pyarrow_dataset()
        self.fragments = {fragment.path: fragment for fragment in self.data.get_fragments()}

    def batches(self, names: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files, with partition values from their paths, and little read-ahead."""
        for name in names:
            yield from self.fragments[name].to_batches(
                schema=self.data.schema,
                columns=schema.names,
                batch_size=1 << 16,
                batch_readahead=1,
                fragment_readahead=1,
            )


def _in_order(gone: pa.Table, there: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
    flags = [pa.repeat(pa.scalar(True), gone.num_rows), pa.repeat(pa.scalar(False), there.num_rows)]
    return pa.concat_tables([gone, there]), pa.chunked_array(flags)


def delta(path: str | Path, *, columns: Sequence[str] | None = None) -> DeltaSource:
    """A Delta table to make a relation from, ``hr.Relation.create(path, hr.delta(...), key=...)``, and to follow later with
    `hr.refresh`.

    Parameters
    ----------
    path
        Its directory.
    columns
        Wanted; all by default.
    """
    return DeltaSource(str(local_path(path)), None if columns is None else tuple(columns))
