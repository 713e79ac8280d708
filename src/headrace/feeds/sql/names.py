"""Names: the columns that a query means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.sql.expressions import Column, Expr, call, kind_of
from headrace.feeds.sql.kernels.places import SIDES
from headrace.feeds.sql.mistakes import BadQuery, near
from headrace.feeds.sql.statement import Feed, mistake, shown_sql


def column_name(alias: str, column: str) -> str:
    """The name of an item's column among the rows that are joined."""
    return f"{alias}__{column}"


def column_of(alias: str, name: str) -> Column:
    """A column of a source."""
    return Column(kind_of(ITEM_SCHEMA.field(name).type), column_name(alias, name))


class Names:
    """Finds columns by their names, in any case.

    Args:
        text: the query, for messages.
        feeds: its sources.
    """

    def __init__(self, text: str, feeds: Sequence[Feed]) -> None:
        self._text, self.feeds = text, feeds
        self.aliases = {one.alias.lower(): one.alias for one in feeds}
        self._columns = {name.lower(): name for name in ITEM_SCHEMA.names}

    def _wrong(self, reason: str, node: Any) -> BadQuery:
        return mistake(reason, node, self._text)

    def find(self, node: Any, grouped: bool) -> Expr:
        """The column that a node names; where rows are `grouped`, no column can be read."""
        parts = [one.this for one in (node.args.get("db"), node.args.get("table"), node.this) if one is not None]
        if isinstance(node.this, exp.Star):
            raise self._wrong("* stands alone in SELECT, or in count(*)", node)
        if node.args.get("catalog"):
            raise self._wrong(f"{shown_sql(node)} has too many parts; write alias.column", node)
        side = None
        if len(parts) == 3 and parts[1].lower() == "box":
            side = parts.pop()
        elif (
            len(parts) == 2
            and len(self.feeds) == 1
            and parts[0].lower() == "box"
            and parts[0].lower() not in self.aliases
        ):
            side = parts.pop()
            parts.insert(0, self.feeds[0].alias)
        if len(parts) == 1:
            if parts[0].lower() in self.aliases and parts[0].lower() not in self._columns:
                raise self._wrong(f"{parts[0]!r} is a feed; name a column of it, such as {parts[0]}.title", node)
            if len(self.feeds) > 1:
                if parts[0].lower() in self._columns:
                    known = ", ".join(f"{one.alias}.{parts[0]}" for one in self.feeds)
                    raise self._wrong(f"{parts[0]!r} could be of any feed; write one of {known}", node)
                raise self._wrong(f"there is no column {parts[0]!r}{near(parts[0], self._columns.values())}", node)
            parts.insert(0, self.feeds[0].alias)
        if len(parts) != 2:
            raise self._wrong(f"{shown_sql(node)} has too many parts; write alias.column", node)
        alias = self.aliases.get(parts[0].lower())
        if alias is None:
            names = ", ".join(self.aliases.values())
            raise self._wrong(
                f"there is no alias {parts[0]!r}; FROM has {names}{near(parts[0], self.aliases.values())}",
                node.args.get("db") or node.args.get("table") or node,
            )
        name = self._columns.get(parts[1].lower())
        if name is None:
            meant = near(parts[1], self._columns.values())
            raise self._wrong(
                f"a feed has no column {parts[1]!r}{meant or '; it has ' + ', '.join(ITEM_SCHEMA.names)}", node.this
            )
        if grouped:
            raise self._wrong(f"{alias}.{name} is neither in GROUP BY nor inside count, sum, avg, min or max", node)
        column = column_of(alias, name)
        if side is None:
            return column
        if side.lower() not in SIDES:
            raise self._wrong(f"a box has {', '.join(SIDES)}, and no {side!r}{near(side, SIDES)}", node.this)
        return call("side", "double", [column], side.lower())
