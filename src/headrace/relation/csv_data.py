"""CSV files as record batches: read once, from the beginning to the end, with types taken from the first block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from csv import reader
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.errors import BadInput, shown

_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")
_BLOCK = 8 << 20  # bytes that are parsed at a time; the first of them decide the types
_WRONG = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to ([^:]+): (.*)", re.DOTALL)
_RAGGED = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


def is_csv(path: Path) -> bool:
    """Tell by its name whether a file is CSV, perhaps compressed."""
    return path.name.lower().endswith(_ENDINGS)


def csv_batches(path: Path, types: pa.Schema | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of a CSV file with a header.

    An empty field is null, and a quoted one an empty text. Columns that `types` names have those types; the others get the
    narrowest that fits all their values in the first block.
    """
    wanted = {} if types is None else {field.name: field.type for field in types}
    try:
        source = csv.open_csv(
            path,  # files: the user's own data
            # One thread: with more of them errors do not say which row it was.
            read_options=csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=wanted, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
        first = next(source, None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _mistake(path, _header(path), wanted, error) from error
    _check(path, source.schema, wanted)
    schema = pa.schema([_in_microseconds(field, first, wanted) for field in source.schema])
    return schema, _batches(path, source, first, schema, wanted)


def _batches(
    path: Path,
    source: csv.CSVStreamingReader,
    first: pa.RecordBatch | None,
    schema: pa.Schema,
    wanted: dict[str, pa.DataType],
) -> Iterator[pa.RecordBatch]:
    batch = first
    while batch is not None:
        try:
            yield batch.cast(schema)
            batch = next(source, None)
        except pa.ArrowInvalid as error:
            raise _mistake(path, schema.names, wanted, error) from error


def _in_microseconds(field: pa.Field, first: pa.RecordBatch | None, wanted: dict[str, pa.DataType]) -> pa.Field:
    """Return the field with microseconds in place of nanoseconds, which Arrow takes for any fraction of a second.

    Where the first block has digits beyond, they stay nanoseconds, for the caller to truncate or refuse.
    """
    if field.name in wanted or first is None or not (pa.types.is_timestamp(field.type) and field.type.unit == "ns"):
        return field
    type_ = pa.timestamp("us", field.type.tz)
    try:
        pc.cast(first.column(field.name), type_)
    except pa.ArrowInvalid:
        return field
    return field.with_type(type_)


def _check(path: Path, schema: pa.Schema, wanted: dict[str, pa.DataType]) -> None:
    for field in schema:
        if pa.types.is_binary(field.type) and field.name not in wanted:
            raise BadInput(
                f"column {field.name!r} of {path} holds text that is not UTF-8; convert the file (iconv -f latin1 -t utf-8),"
                " or give pyarrow.csv.open_csv(path, read_options=pyarrow.csv.ReadOptions(encoding='latin1'))"
            )
    if len(schema) == 1:
        found = [mark for mark in (";", "\t", "|") if mark in schema.names[0]]
        if found:
            raise BadInput(
                f"{path} has one column, {shown(schema.names[0])}, and seems to be separated by {found[0]!r}; give"
                f" pyarrow.csv.open_csv(path, parse_options=pyarrow.csv.ParseOptions(delimiter={found[0]!r}))"
            )


def _header(path: Path) -> list[str]:
    """Return the names of the columns of a file whose first block does not fit the types that it must have."""
    with pa.input_stream(str(path), compression="detect") as source:  # files: the user's own data
        line = source.read(_BLOCK).split(b"\n", 1)[0]
    return next(reader([line.decode("utf-8-sig", "replace")]), [])


def _mistake(path: Path, names: Sequence[str], wanted: dict[str, pa.DataType], error: Exception) -> BadInput:
    """Say in which row and column a value does not fit, and what to do about it."""
    text = str(error)
    if found := _WRONG.match(text):
        number, row, type_, reason = int(found[1]), found[2], found[3], _one_line(found[4])
        name = names[number] if number < len(names) else f"number {number + 1}"
        where = f"row {int(row):,} of {path} (the header is row 1)" if row else str(path)
        if name in wanted:
            return BadInput(
                f"column {name!r} in {where} does not fit {type_}, the relation's type: {reason}; mend the file"
            )
        if type_ == "null":
            type_, reason = "nothing", f"{reason}, and the first {_BLOCK >> 20}MiB have no value in this column"
        return BadInput(
            f"column {name!r} in {where} does not fit {type_}, the type of the rows before: {reason}; mend the file, or read"
            " the column as text: pyarrow.csv.open_csv(path, convert_options=pyarrow.csv.ConvertOptions(column_types="
            f"{{{name!r}: 'string'}}))"
        )
    if found := _RAGGED.match(text):
        where = f"row {int(found[1]):,} of {path} (the header is row 1)" if found[1] else f"a row of {path}"
        return BadInput(
            f"{where} has {found[3]} fields where the header has {found[2]}; mend the file: quote a value that holds a comma, say"
        )
    if text.startswith("Empty CSV"):
        return BadInput(f"{path} is empty; expected a CSV file whose first line names the columns")
    return BadInput(f"{path} cannot be read as CSV: {shown(error)}")


def _one_line(reason: str) -> str:
    """Return Arrow's reason in one line, cut to what a message has room for."""
    return shown(Exception(" ".join(reason.split())))
