"""Files of rows that commands take: Parquet, or CSV whose values are read as the relation's types."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.errors import BadInput, shown
from headrace.files import exists
from headrace.relation.csv_data import is_csv
from headrace.relation.input_data import table_of

_PARQUET = (".parquet", ".pq")


def is_row_file(text: str) -> bool:
    """Tell whether a text names a file of rows, there or not, and no key.

    Example:
        >>> is_row_file("gone.csv"), is_row_file("2024-12-31,7")
        (True, False)
    """
    return is_csv(Path(text)) or text.lower().endswith(_PARQUET) or exists(Path(text))


def read_rows(path: Path, schema: pa.Schema | None, option: str, *, only: bool = False) -> pa.Table:
    """Read a file, or a directory of Parquet files.

    Args:
        path: the file.
        schema: the types of columns of CSV; where it is None, they are as they look.
        option: what errors call the file.
        only: whether to leave out what the schema does not have, and to give the rest its types.
    """
    if not exists(path):
        raise BadInput(f"{option} {str(path)!r} is not there; give a Parquet or CSV file")
    table = table_of(path, option, types=schema)
    if not only or schema is None:
        return table
    for name in schema.names:
        if name not in table.column_names:
            there = ", ".join(table.column_names)
            raise BadInput(f"{option} {str(path)!r} has no column {name!r}; it has {there}")
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadInput(f"{option} {str(path)!r} does not fit the relation's key: {shown(error)}") from error
