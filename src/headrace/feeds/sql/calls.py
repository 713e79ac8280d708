"""Calls: expressions of calls of functions, with their arguments checked."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput
from headrace.feeds.sql.expressions import COMPARABLE, KINDS, NUMBERS, Constant, Expr, call, to_double
from headrace.feeds.sql.functions import FUNCTIONS, Function
from headrace.feeds.sql.kernels.texts import check_pattern
from headrace.feeds.sql.kernels.times import PARTS, UNITS

if TYPE_CHECKING:
    from headrace.feeds.sql.binder import Binder


class Calls:
    """Makes expressions of calls.

    Args:
        binder: makes those of the arguments.
    """

    def __init__(self, binder: Binder) -> None:
        self._binder = binder

    def make(self, name: str, node: Any, arguments: list[Any]) -> Expr | None:
        """The expression of a call; None if there is no function of this name."""
        if name in FUNCTIONS:
            return self._known(FUNCTIONS[name], name, node, arguments)
        special = getattr(self, f"_call_{name}", None)
        made: Expr | None = None if special is None else special(node, arguments)
        return made

    def _known(self, function: Function, name: str, node: Any, arguments: list[Any]) -> Expr:
        most, least = len(function.takes), len(function.takes) - function.optional
        if not least <= len(arguments) <= most:
            takes = str(most) if least == most else f"{least} or {most}"
            raise self._binder.wrong(
                f"{name}() takes {takes} argument{'s' * (most != 1)}, and here are {len(arguments)}", node
            )
        fixed = most - function.literal
        values = [
            self._binder.as_kind(kind, self._binder.bind(one), one, f"{name}()")
            for kind, one in zip(function.takes[:fixed], arguments[:fixed], strict=True)
        ]
        options: list[Any] = [
            self._binder.option(one, kind, f"{name}()")
            for kind, one in zip(function.takes[fixed:], arguments[fixed:], strict=False)
        ]
        options += [function.default] * (most - len(arguments))
        if name == "replace" and not options[0]:
            raise self._binder.wrong("replace() has an empty text to be replaced", arguments[1])
        if name == "substr" and (options[0] == 0 or (options[1] or 0) < 0):
            raise self._binder.wrong("substr() counts from 1 on, or from the end with a number below 0", node)
        gives: Any = values[0].kind if function.gives == "same" else function.gives
        return call(function.kernel, gives, values, *options)

    def _call_length(self, node: Any, arguments: list[Any]) -> Expr:
        (one,) = self._binder.exactly(1, "length", node, arguments)
        value = self._binder.bind(one)
        if value.kind == "list":
            return call("array_length", "integer", [value])
        return call("length", "integer", [self._binder.as_kind("text", value, one, "length()")])

    def _call_left(self, node: Any, arguments: list[Any]) -> Expr:
        one, size = self._binder.exactly(2, "left", node, arguments)
        return call(
            "substr",
            "text",
            [self._binder.as_kind("text", self._binder.bind(one), one, "left()")],
            1,
            self._binder.count(size, "left()"),
        )

    def _call_right(self, node: Any, arguments: list[Any]) -> Expr:
        one, size = self._binder.exactly(2, "right", node, arguments)
        value, count = (
            self._binder.as_kind("text", self._binder.bind(one), one, "right()"),
            self._binder.count(size, "right()"),
        )
        return call("substr", "text", [value], -count, None) if count else call("substr", "text", [value], 1, 0)

    def _call_contains(self, node: Any, arguments: list[Any]) -> Expr:
        one, other = self._binder.exactly(2, "contains", node, arguments)
        value, part = (
            self._binder.bind(one),
            self._binder.as_kind("text", self._binder.bind(other), other, "contains()"),
        )
        if value.kind == "list":
            return call("list_contains", "boolean", [value, part])
        return call("contains", "boolean", [self._binder.as_kind("text", value, one, "contains()"), part])

    def _call_regexp_matches(self, node: Any, arguments: list[Any]) -> Expr:
        one, other = self._binder.exactly(2, "regexp_matches", node, arguments)
        pattern = self._binder.option(other, "text", "regexp_matches()")
        try:
            check_pattern(pattern)
        except BadInput as error:
            raise self._binder.wrong(str(error), other) from None
        return call(
            "regexp",
            "boolean",
            [self._binder.as_kind("text", self._binder.bind(one), one, "regexp_matches()")],
            pattern,
        )

    def _call_concat(self, node: Any, arguments: list[Any]) -> Expr:
        if not arguments:
            raise self._binder.wrong("concat() takes one text or more", node)
        return call(
            "concat",
            "text",
            [self._binder.as_kind("text", self._binder.bind(one), one, "concat()") for one in arguments],
        )

    def _call_coalesce(self, node: Any, arguments: list[Any]) -> Expr:
        values = self._binder.alike([self._binder.bind(one) for one in arguments], arguments, "coalesce()")
        return call("coalesce", values[0].kind, values)

    def _call_greatest(self, node: Any, arguments: list[Any]) -> Expr:
        return self._extreme("greatest", arguments)

    def _call_least(self, node: Any, arguments: list[Any]) -> Expr:
        return self._extreme("least", arguments)

    def _extreme(self, name: str, arguments: list[Any]) -> Expr:
        values = self._binder.alike([self._binder.bind(one) for one in arguments], arguments, f"{name}()")
        if values[0].kind not in (*NUMBERS, "moment", "text"):
            raise self._binder.wrong(f"{name}() takes numbers, moments or texts", arguments[0])
        return call(name, values[0].kind, values)

    def _call_nullif(self, node: Any, arguments: list[Any]) -> Expr:
        one, other = self._binder.exactly(2, "nullif", node, arguments)
        a, b = self._binder.pair(self._binder.bind(one), self._binder.bind(other), one, other, "nullif()")
        if a.kind not in COMPARABLE:
            raise self._binder.wrong(f"nullif() cannot compare {KINDS[a.kind]}", one)
        return call("nullif", a.kind, [a, b])

    def _call_if(self, node: Any, arguments: list[Any]) -> Expr:
        test, *rest = arguments
        values = [self._binder.bind(one) for one in rest]
        values += [Constant("null", None)] * (2 - len(values))
        values = self._binder.alike(values, [*rest, node, node], "if()")
        return call("if", values[0].kind, [self._binder.condition(test), *values])

    def _call_date_trunc(self, node: Any, arguments: list[Any]) -> Expr:
        unit, one = self._binder.exactly(2, "date_trunc", node, arguments)
        name = self._binder.unit(unit, UNITS)
        return call(
            "date_trunc", "moment", [self._binder.as_kind("moment", self._binder.bind(one), one, "date_trunc()")], name
        )

    def _call_extract(self, node: Any, arguments: list[Any]) -> Expr:
        part, one = self._binder.exactly(2, "extract", node, arguments)
        name = self._binder.unit(part, (*PARTS, "dow", "doy"))
        name = {"dow": "dayofweek", "doy": "dayofyear"}.get(name, name)
        return self._known(FUNCTIONS[name], name, node, [one])

    _call_date_part = _call_extract

    def _call_time_bucket(self, node: Any, arguments: list[Any]) -> Expr:
        width, one = self._binder.exactly(2, "time_bucket", node, arguments)
        return self._call_window(node, [one, width])

    def _call_window(self, node: Any, arguments: list[Any]) -> Expr:
        one, width = self._binder.exactly(2, "window", node, arguments)
        value = self._binder.as_kind("moment", self._binder.bind(one), one, "window()")
        length = self._binder.bind(width)
        if length.kind == "text" and isinstance(length, Constant):
            length = Constant("interval", timedelta(seconds=self._binder.literals.seconds(length.value, width)))
        if not isinstance(length, Constant) or length.kind != "interval" or not length.value:
            raise self._binder.wrong("window() takes a moment and a length, such as window(a.seen, '1 hour')", width)
        micros = length.value // timedelta(microseconds=1)
        return call("bucket", "moment", [value], micros)

    def _call_geo_km(self, node: Any, arguments: list[Any]) -> Expr:
        return call("geo_km", "double", self._places("geo_km", node, arguments))

    def _call_within_km(self, node: Any, arguments: list[Any]) -> Expr:
        if len(arguments) not in (3, 5):
            raise self._binder.wrong(
                "within_km() takes two feeds, or two latitudes and longitudes, and kilometres: within_km(a, b, 50)",
                node,
            )
        km = to_double(self._binder.as_kind("double", self._binder.bind(arguments[-1]), arguments[-1], "within_km()"))
        return call("<=", "boolean", [call("geo_km", "double", self._places("within_km", node, arguments[:-1])), km])

    def _places(self, name: str, node: Any, arguments: list[Any]) -> list[Expr]:
        if len(arguments) == 2:
            found: list[Expr] = []
            for one in arguments:
                alias = self._binder.alias_of(one)
                if alias is None:
                    raise self._binder.wrong(
                        f"{name}() takes feeds, as in {name}(a, b…), or latitudes and longitudes", one
                    )
                if self._binder.keys is not None:
                    raise self._binder.wrong(f"{alias} is neither in GROUP BY nor inside an aggregate", one)
                found += [self._binder.column(alias, "geoLat"), self._binder.column(alias, "geoLong")]
            return found
        values = self._binder.exactly(4, name, node, arguments)
        return [self._binder.as_kind("double", self._binder.bind(one), one, f"{name}()") for one in values]

    def _call_intersects(self, node: Any, arguments: list[Any]) -> Expr:
        boxes = []
        for one in self._binder.exactly(2, "intersects", node, arguments):
            alias = self._binder.alias_of(one)
            value = (
                self._binder.column(alias, "box")
                if alias is not None and self._binder.keys is None
                else self._binder.bind(one)
            )
            boxes.append(self._binder.as_kind("box", value, one, "intersects()"))
        return call("intersects", "boolean", boxes)
