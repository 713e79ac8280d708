"""Rows in whatever form a user has them, as record batches: pyarrow, pandas, Polars, DuckDB, paths, and Arrow's C interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from headrace.errors import BadInput, UnsupportedType, kind, shown
from headrace.files import exists, is_directory, paths_in
from headrace.paths import local_path
from headrace.relation.csv_data import csv_batches, is_csv

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

_BATCH = 1 << 16  # rows that are asked of a source at a time
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)  # what Arrow raises for values that it cannot hold
EXPECTED = (
    "a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas or Polars frame, a DuckDB relation, anything with"
    " __arrow_c_stream__, or the path of Parquet or CSV files"
)


def is_spark(data: Any) -> bool:
    """Tell whether data are a Spark DataFrame, which executors read."""
    return hasattr(data, "sparkSession")


def source_of(
    data: Any, what: str = "data", *, types: pa.Schema | None = None
) -> tuple[pa.Schema, Iterable[pa.RecordBatch], int | None]:
    """Return the schema, the batches and, where known, the number of rows. Errors call the rows `what`.

    Nothing but what is in memory already is held there: files, readers, lazy frames and DuckDB relations are read as batches are
    asked for. `types` are those of the columns of a CSV file, where they are known; other sources have types of their own.
    """
    from pyarrow import dataset  # imports pandas, 45 MiB, which workers that create no relation can do without

    if isinstance(data, str | Path):
        path = local_path(data, what)
        if not exists(path):
            raise BadInput(
                f"there are no {what} at {path}; expected a Parquet or CSV file, or a directory of Parquet files"
            )
        if is_csv(path):
            schema, batches = csv_batches(path, types)
            return schema, batches, None
        data = _parquet(path, what)
    if isinstance(data, dataset.Dataset):
        return data.schema, _dataset_batches(data), data.count_rows()
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data, None
    if _is_lazy_frame(data):
        return _lazy_batches(data, what)
    table = _in_memory(data, what)
    if table is not None:
        return table.schema, table.to_batches(max_chunksize=1 << 20), table.num_rows
    if hasattr(data, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except _REFUSED as error:
            raise _no_columns(data, what, error) from error
        return reader.schema, reader, None
    spark = "a Spark DataFrame, " if what == "data" else ""
    raise BadInput(f"{what} is a {kind(data)}; expected {spark}{EXPECTED}{_advice(data)}")


def table_of(data: Any, what: str, *, types: pa.Schema | None = None) -> pa.Table:
    """Return rows as a table in memory, from all that `source_of` takes."""
    if is_spark(data):
        raise BadInput(f"{what} is a Spark DataFrame, and is held in this process's memory; give df.toArrow()")
    table = _in_memory(data, what)
    if table is not None:
        return table
    schema, batches, _ = source_of(data, what, types=types)
    return pa.Table.from_batches(list(batches), schema)


def refuse_index(data: Any, names: Sequence[str], before: str) -> None:
    """Refuse a pandas frame whose index has a name that a column should have; `before` is what the message begins with."""
    if not (_is_of(data, "pandas") and hasattr(data, "columns")):
        return
    for name in names:
        if name not in data.columns and name in data.index.names:
            raise BadInput(f"{before}{name!r} is the frame's index, not a column: use frame.reset_index()")


def _in_memory(data: Any, what: str) -> pa.Table | None:
    """Return rows that are in memory already as a table, mostly without a copy; None if they are not."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if _is_of(data, "pandas"):
        return _pandas_table(data, what)
    if _is_of(data, "polars") and hasattr(data, "height"):  # a lazy frame has none
        return _polars_table(data)
    if hasattr(data, "__arrow_c_array__") and not hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.Table.from_batches([pa.record_batch(data)])
        except _REFUSED as error:
            raise _no_columns(data, what, error) from error
    return None


def _is_of(data: Any, package: str) -> bool:
    """Tell where a type comes from without importing that package, which the user need not have."""
    return type(data).__module__.split(".")[0] == package


def _no_columns(data: Any, what: str, error: Exception) -> BadInput:
    """Say why what has Arrow's C interface cannot be used: mostly because it is one column and not a table."""
    if "non-struct" in str(error):
        return BadInput(f"{what} is a {kind(data)}, which has no named columns; expected {EXPECTED}")
    return BadInput(f"{what} is a {kind(data)} that pyarrow cannot read: {shown(error)}")


def _advice(data: Any) -> str:
    if isinstance(data, dict):
        return "; a dict of columns becomes a table by pa.table(data)"
    if isinstance(data, list):
        return "; a list of dicts becomes a table by pa.Table.from_pylist(data)"
    if _is_of(data, "pyspark") and hasattr(data, "to_spark"):
        return "; a pandas-on-Spark frame becomes a Spark DataFrame by data.to_spark()"
    return ""


# -- pandas ------------------------------------------------------------------------------------------------------------


def _pandas_table(frame: Any, what: str) -> pa.Table:
    if not hasattr(frame, "columns"):
        raise BadInput(f"{what} is a pandas {type(frame).__name__}; give a frame: series.reset_index(), say")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except _REFUSED as error:
        raise _mixed_column(frame, what, error) from error


def _mixed_column(frame: Any, what: str, error: Exception) -> BadInput:
    """Find the column that Arrow could not convert, and say which types of values it holds where."""
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        return BadInput(f"{what} has column {twice!r} more than once; rename the columns so that each name is unique")
    for name in frame.columns:
        try:
            pa.array(frame[name], from_pandas=True)
        except _REFUSED as reason:
            first: dict[str, int] = {}
            for row, (value, null) in enumerate(zip(frame[name], frame[name].isna(), strict=True)):
                if not null:
                    first.setdefault(type(value).__name__, row)
            if len(first) > 1:
                found = " and ".join(f"{type_} (row {row})" for type_, row in list(first.items())[:3])
                return BadInput(
                    f"column {name!r} of the pandas frame mixes {found}; give it one type:"
                    f" frame[{name!r}] = frame[{name!r}].astype(str), say"
                )
            return BadInput(f"column {name!r} of the pandas frame cannot be converted to Arrow: {shown(reason)}")
    return BadInput(f"the pandas frame cannot be converted to Arrow: {shown(error)}")


# -- Polars ------------------------------------------------------------------------------------------------------------


def _is_lazy_frame(data: Any) -> bool:
    return _is_of(data, "polars") and hasattr(data, "collect_schema") and hasattr(data, "collect")


def _lazy_batches(frame: Any, what: str) -> tuple[pa.Schema, Iterable[pa.RecordBatch], int | None]:
    """Return the batches of a lazy frame as Polars makes them; versions that have no such call collect it first."""
    if not hasattr(frame, "collect_batches"):
        return source_of(frame.collect(), what)
    empty = _polars_table(frame.collect_schema().to_frame())

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in frame.collect_batches(chunk_size=_BATCH, maintain_order=True):
            # The dictionary of a category may be another in each piece: it is stored as text all the same.
            yield from _polars_table(piece).cast(empty.schema).to_batches()

    return empty.schema, batches(), None


def _polars_table(frame: Any) -> pa.Table:
    for name, type_ in frame.schema.items():
        if "Object" in str(type_):  # exported as addresses in memory
            raise _unknown_to_arrow(name, type_)
    try:
        return pa.RecordBatchReader.from_stream(frame).read_all()
    except _REFUSED:
        for name, type_ in frame.schema.items():
            try:
                pa.RecordBatchReader.from_stream(frame.select(name)).read_all()
            except _REFUSED as error:
                raise _unknown_to_arrow(name, type_) from error
        raise


def _unknown_to_arrow(name: str, type_: Any) -> UnsupportedType:
    return UnsupportedType(
        f"column {name!r} has Polars' type {type_}, which Arrow does not have; drop it, or cast it before: to Int64, Decimal or"
        " String, say"
    )


# -- files -------------------------------------------------------------------------------------------------------------


def _parquet(path: Path, what: str) -> Dataset:
    from pyarrow import dataset

    try:
        return dataset.dataset(path, format="parquet", partitioning="hive")
    except (pa.ArrowInvalid, OSError) as error:
        if is_directory(path) and any(is_csv(file) for file in paths_in(path)):
            reason = "is a directory of CSV files; give one file, or pyarrow.dataset.dataset(path, format='csv')"
        else:
            reason = f"cannot be read as Parquet ({shown(error)}); expected Parquet files, or a file that ends in .csv"
        raise BadInput(f"{what}={str(path)!r} {reason}") from error


def _dataset_batches(data: Dataset) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a dataset with as little read-ahead as possible."""
    from pyarrow.dataset import ParquetFileFragment

    try:
        fragments = list(data.get_fragments())
    except ValueError:  # a filtered dataset has no fragments; only the scanner can read it
        yield from data.to_batches(batch_size=_BATCH, batch_readahead=1, fragment_readahead=1)
        return
    for fragment in fragments:
        plain = isinstance(fragment, ParquetFileFragment)
        if plain and fragment.physical_schema.equals(data.schema):
            # The scanner decodes row groups ahead, several hundred MB of them; this reader does not.
            with fragment.open() as source:
                reader = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
                yield from reader.iter_batches(batch_size=_BATCH)
        else:
            yield from fragment.to_batches(
                schema=data.schema, batch_size=_BATCH, batch_readahead=1, fragment_readahead=1
            )
