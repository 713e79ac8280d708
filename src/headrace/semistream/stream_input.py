"""A stream in whatever form a user has it, as something that yields record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import BadInput, kind
from headrace.relation.columns import decoded, plain_type
from headrace.relation.input_data import is_spark, source_of
from headrace.semistream.driver import PolledSource


def stream_batches(given: Any) -> Iterable[pa.RecordBatch] | PolledSource:
    """Return the batches of rows that are there already; a stream stays what it is.

    Tables and frames are iterable themselves, column by column, which is not what anybody means here.
    """
    if isinstance(given, pa.RecordBatch):
        return [given]
    if isinstance(given, pa.Table):
        batches: list[pa.RecordBatch] = given.to_batches()
        return batches
    if is_spark(given):
        raise BadInput("batches is a Spark DataFrame; join it on Spark, with hr.enrich(df, rel, on=...)")
    if isinstance(given, pa.RecordBatchReader | list | PolledSource):
        return given
    package = type(given).__module__.split(".")[0]
    if package in ("pandas", "polars") or hasattr(given, "__arrow_c_stream__") or isinstance(given, str | Path):
        schema, rows, _ = source_of(given, "batches")
        return _without_views(schema, rows)
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise BadInput(
            f"batches is a {kind(given)}; expected an iterable of pyarrow RecordBatches, a Table, or a pandas or Polars frame"
        )
    return given


def _without_views(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with texts as they are joined: Arrow cannot pick rows of views, which Polars has."""
    plain = pa.schema([pa.field(f.name, plain_type(f.name, f.type)) if _has_views(f.type) else f for f in schema])
    if plain == schema:
        yield from batches
        return
    for batch in batches:
        columns = [decoded(c) if pa.types.is_dictionary(c.type) and _has_views(c.type) else c for c in batch.columns]
        yield pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(columns, plain, strict=True)], schema=plain
        )


def _has_views(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return _has_views(type_.value_type)
    return bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_))
