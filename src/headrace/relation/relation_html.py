"""A relation as a notebook shows it: what it is, its columns and its first rows, as HTML of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import HeadraceError, shown
from headrace.relation.rows_out import first_rows
from headrace.units import format_size

if TYPE_CHECKING:
    from headrace.relation.relation import Relation

_ROWS = 5  # rows shown
_COLUMNS = 12  # columns of the rows shown, the key among them
_FIELDS = 24  # columns whose types are shown
_LONGEST = 32  # characters of a value or a name
_LONGEST_FLOAT = 10  # characters from which a number is shown to eight digits

# Colours come from the notebook, light or dark; only lines and faint text are set, by opacity.
_STYLE = """<style>
.headrace-relation {font-size: 13px; line-height: 1.45; max-width: 100%}
.headrace-relation .hr-path {font-weight: 600; overflow-wrap: anywhere}
.headrace-relation .hr-facts, .headrace-relation .hr-note {opacity: .75}
.headrace-relation .hr-facts span {display: inline-block; margin-right: 1.1em; white-space: nowrap}
.headrace-relation .hr-fields {margin: .35em 0; overflow-wrap: anywhere}
.headrace-relation .hr-fields span {display: inline-block; margin-right: .9em}
.headrace-relation i {opacity: .65}
.headrace-relation .hr-rows {overflow-x: auto}
.headrace-relation table {border-collapse: collapse; margin: .2em 0}
.headrace-relation th, .headrace-relation td {text-align: left; padding: .15em .9em .15em 0; white-space: nowrap;
  border-bottom: 1px solid rgba(128, 128, 128, .3)}
.headrace-relation .hr-number {text-align: right; font-variant-numeric: tabular-nums}
</style>"""


def relation_html(relation: Relation) -> str:
    """Return the relation as HTML: facts, columns with their types, the first rows. A closed one has no rows to show."""
    stored = sum(file.bytes for shard in relation.opened.manifest.shards for file in shard.files)
    facts = [
        f"version {relation.version}",
        _counted(relation.num_rows, "row"),
        _counted(relation.num_pages, "page"),
        format_size(stored),
        f"key {', '.join(_text(name) for name in relation.key)}",
        _counted(relation.num_shards, "shard"),
    ]
    return (
        f'{_STYLE}<div class="headrace-relation">'
        f'<div class="hr-path">Relation {escape(str(relation.path))}</div>'
        f'<div class="hr-facts">{"".join(f"<span>{fact}</span>" for fact in facts)}</div>'
        f'<div class="hr-fields">{_fields(relation)}</div>'
        f"{_first_rows(relation)}</div>"
    )


def _fields(relation: Relation) -> str:
    names = _key_first(relation)
    spans = [
        f"<span>{'<b>' if name in relation.key else ''}{_text(name)}{'</b>' if name in relation.key else ''}"
        f" <i>{_text(str(relation.schema.field(name).type))}</i></span>"
        for name in names[:_FIELDS]
    ]
    return " ".join([*spans, *_more(len(names) - _FIELDS)])


def _first_rows(relation: Relation) -> str:
    if relation.opened.closed:
        return '<div class="hr-note">closed: open it again to see its rows</div>'
    names = _key_first(relation)[:_COLUMNS]
    try:
        table = first_rows(relation, _ROWS, names)
    except (HeadraceError, OSError) as error:  # facts are shown all the same, and why there are no rows
        return f'<div class="hr-note">its rows cannot be read: {escape(shown(error))}</div>'
    numbers = [
        pa.types.is_integer(f.type) or pa.types.is_floating(f.type) or pa.types.is_decimal(f.type) for f in table.schema
    ]
    head = "".join(_cell("th", name, number) for name, number in zip(names, numbers, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell('td', row[name], number) for name, number in zip(names, numbers, strict=True))}</tr>"
        for row in table.to_pylist()
    )
    beyond = [
        *([f"{relation.num_rows - table.num_rows:,} more rows"] if relation.num_rows > table.num_rows else []),
        *([f"{len(relation.schema) - len(names):,} more columns"] if len(relation.schema) > len(names) else []),
    ]
    return (
        f'<div class="hr-rows"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f'<div class="hr-note">{"and " if beyond else ""}{" and ".join(beyond)}</div>'
    )


def _key_first(relation: Relation) -> list[str]:
    return [*relation.key, *(name for name in relation.schema.names if name not in relation.key)]


def _cell(tag: str, value: Any, number: bool) -> str:
    kind = ' class="hr-number"' if number else ""
    if isinstance(value, float) and len(str(value)) > _LONGEST_FLOAT:
        value = f"{value:.8g}"
    return f"<{tag}{kind}>{'<i>null</i>' if value is None else _text(str(value))}</{tag}>"


def _text(text: str) -> str:
    """Return a text that is safe in HTML and short enough for a cell."""
    return escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _more(number: int) -> Sequence[str]:
    return [f"<i>and {number:,} more columns</i>"] if number > 0 else []
