"""Literals: numbers, texts, intervals and moments as a query writes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlglot import exp

from headrace.errors import BadInput
from headrace.feeds.sql.expressions import Constant, Expr, call
from headrace.feeds.sql.mistakes import BadQuery
from headrace.feeds.sql.statement import mistake
from headrace.units import parse_duration

_LONGEST_INTERVAL = 36_525 * 86_400  # seconds: a hundred years, which added to any date of a calendar fits 64 bits


class Literals:
    """Makes constants of nodes.

    Args:
        text: the query, for messages.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def _wrong(self, reason: str, node: Any) -> BadQuery:
        return mistake(reason, node, self._text)

    def value(self, node: Any) -> Expr:
        """A number or a text."""
        if node.is_string:
            return Constant("text", node.this)
        text = str(node.this)
        if text.isdigit():
            if len(text) > 18:
                raise self._wrong(f"{text} does not fit 64 bits", node)
            return Constant("integer", int(text))
        value = float(text)
        if not math.isfinite(value):
            raise self._wrong(f"{text} is too large a number", node)
        return Constant("double", value)

    def interval(self, node: Any) -> Expr:
        """An INTERVAL."""
        amount, unit = node.this, node.args.get("unit")
        if isinstance(amount, exp.Neg):
            return call("negate", "interval", [self.interval(exp.Interval(this=amount.this, unit=unit))])
        text = str(amount.this) if isinstance(amount, exp.Literal) else ""
        text = f"{text} {unit.this}" if unit is not None else text
        return Constant("interval", timedelta(seconds=self.seconds(text, node)))

    def seconds(self, text: str, node: Any) -> float:
        """The seconds of a text such as '90 minutes'."""
        words = text.lower().replace("weeks", "week")
        try:
            if words.endswith("week"):
                seconds = 7 * 86_400 * float(words.removesuffix("week"))
            else:
                seconds = parse_duration(words, name="an interval", zero=True)
        except (BadInput, ValueError):
            hint = " (months and years have no fixed length)" if any(one in words for one in ("month", "year")) else ""
            raise self._wrong(
                f"{text!r} is not an interval{hint}; write '1 hour', '90 minutes' or '2 days'", node
            ) from None
        if seconds > _LONGEST_INTERVAL:
            raise self._wrong(f"{text!r} is longer than a hundred years", node)
        return seconds

    def moment(self, text: str, node: Any) -> Constant:
        """A text in quotes as a moment; without an offset it is UTC."""
        try:
            value = datetime.fromisoformat(text.strip())
            value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        except (ValueError, OverflowError):
            raise self._wrong(f"{text!r} is not a moment; write '2026-07-01' or '2026-07-01 12:00:00'", node) from None
        return Constant("moment", value)
