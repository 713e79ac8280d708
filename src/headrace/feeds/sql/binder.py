"""Binder: makes expressions of sqlglot's nodes, with kinds checked and columns found. What is wrong is named with its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from headrace.errors import shown
from headrace.feeds.sql.calls import Calls
from headrace.feeds.sql.expressions import (
    COMPARABLE,
    KINDS,
    NUMBERS,
    Column,
    Constant,
    Expr,
    Kind,
    call,
    to_double,
)
from headrace.feeds.sql.functions import AGGREGATES, called, known_names
from headrace.feeds.sql.kernels.texts import like_pattern
from headrace.feeds.sql.literals import Literals
from headrace.feeds.sql.mistakes import BadQuery, near
from headrace.feeds.sql.names import Names, column_of
from headrace.feeds.sql.statement import Feed, mistake, shown_sql

COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_CASTS: dict[str, Kind] = {
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "NVARCHAR"), "text"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "double"),
    **dict.fromkeys(("DATE", "DATETIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ"), "moment"),
}
_NOW = "the time of now differs from run to run; use a.seen, the moment at which an item was pulled"


class Binder:
    """Makes expressions of the nodes of one query.

    Args:
        text: the query, for messages.
        feeds: its sources.
        aggregate: called for an aggregate's node, gives the column that has its value; None where aggregates are not allowed.
        keys: what GROUP BY names, as SQL, with the columns that have the values; then no other column can be read.
    """

    def __init__(
        self,
        text: str,
        feeds: Sequence[Feed],
        aggregate: Callable[[str, Any], Expr] | None = None,
        keys: dict[str, Expr] | None = None,
    ) -> None:
        self.text, self.feeds = text, feeds
        self._aggregate, self.keys = aggregate, keys
        self._names, self.literals = Names(text, feeds), Literals(text)

    # -- what others ask for -------------------------------------------------------------------------------------------------

    def bind(self, node: Any) -> Expr:
        """Make an expression of a node."""
        try:
            return self._bind(node)
        except RecursionError:
            raise BadQuery("the query is nested too deeply", self.text) from None

    def condition(self, node: Any) -> Expr:
        """Make an expression that is true or false of a node."""
        return self.as_kind("boolean", self.bind(node), node, "a condition")

    def wrong(self, reason: str, node: Any) -> BadQuery:
        """What is wrong with a node."""
        return mistake(reason, node, self.text)

    def alias_of(self, node: Any) -> str | None:
        """The alias that a node is, as `a` in within_km(a, b, 5); None if it is anything else."""
        if isinstance(node, exp.Column) and not node.args.get("table") and isinstance(node.this, exp.Identifier):
            return self._names.aliases.get(node.this.this.lower())
        return None

    def column(self, alias: str, name: str) -> Column:
        """A column of a source."""
        return column_of(alias, name)

    # -- nodes -----------------------------------------------------------------------------------------------------------------

    def _bind(self, node: Any) -> Expr:
        if self.keys is not None and (key := self.keys.get(shown_sql(node).lower())) is not None:
            return key
        match node:
            case exp.Paren():
                return self._bind(node.this)
            case exp.Column():
                return self._names.find(node, self.keys is not None)
            case exp.Literal():
                return self.literals.value(node)
            case exp.Boolean():
                return Constant("boolean", bool(node.this))
            case exp.Null():
                return Constant("null", None)
            case exp.Interval():
                return self.literals.interval(node)
            case exp.And() | exp.Or():
                word = "and" if isinstance(node, exp.And) else "or"
                return call(word, "boolean", [self.condition(node.this), self.condition(node.expression)])
            case exp.Not():
                return call("not", "boolean", [self.condition(node.this)])
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._compare(COMPARISONS[type(node)], node.this, node.expression, node)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                same = self._compare("is not distinct", node.this, node.expression, node)
                return same if isinstance(node, exp.NullSafeEQ) else call("not", "boolean", [same])
            case exp.Between():
                low = self._compare(">=", node.this, node.args["low"], node)
                return call("and", "boolean", [low, self._compare("<=", node.this, node.args["high"], node)])
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Like() | exp.ILike():
                return self._like(node, None)
            case exp.Escape():
                return self._like(node.this, node.expression)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
                return self._arithmetic(_ARITHMETIC[type(node)], node)
            case exp.Neg():
                inner = self._bind(node.this)
                if inner.kind not in (*NUMBERS, "null"):
                    raise self.wrong(f"- takes a number, and {self.said(node.this, inner)}", node.this)
                return call("negate", inner.kind, [inner])
            case exp.DPipe():
                sides = [self.as_kind("text", self._bind(one), one, "||") for one in (node.this, node.expression)]
                return call("||", "text", sides)
            case exp.Case():
                return self._case(node)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case exp.Trim():
                return self._trim(node)
            case exp.CurrentTimestamp() | exp.CurrentDate() | exp.CurrentTime():
                raise self.wrong(_NOW, node)
            case exp.Star():
                raise self.wrong("* stands alone in SELECT, or in count(*)", node)
        found = called(node)
        if found is None:
            raise self.wrong(f"{shown(shown_sql(node))} is not part of this SQL", node)
        return self._call(node, *found)

    # -- conditions ------------------------------------------------------------------------------------------------------------

    def _compare(self, word: str, left: Any, right: Any, node: Any) -> Expr:
        a, b = self.pair(self._bind(left), self._bind(right), left, right, f"{word!r}")
        if word not in ("=", "<>", "is not distinct") and a.kind not in (*COMPARABLE, "null"):
            raise self.wrong(f"{KINDS[a.kind]} is neither less nor more than another; compare it with = or <>", left)
        if a.kind == "list":
            a, b = (call("list_text", "text", [one]) if isinstance(one, Column) else one for one in (a, b))
        if a.kind == "box":
            raise self.wrong("boxes are compared with intersects(a.box, b.box)", node)
        return call(word, "boolean", [a, b])

    def pair(self, a: Expr, b: Expr, left: Any, right: Any, what: str) -> tuple[Expr, Expr]:
        """Two values of one kind: a whole number becomes a number beside one, and a text in quotes a moment beside a moment."""
        if a.kind == b.kind:
            return a, b
        if "null" in (a.kind, b.kind):
            return (Constant(b.kind, None), b) if a.kind == "null" else (a, Constant(a.kind, None))
        if a.kind in NUMBERS and b.kind in NUMBERS:
            return to_double(a), to_double(b)
        if a.kind == "moment" and isinstance(b, Constant) and b.kind == "text":
            return a, self.literals.moment(b.value, right)
        if b.kind == "moment" and isinstance(a, Constant) and a.kind == "text":
            return self.literals.moment(a.value, left), b
        hint = (
            "; use contains(" + (shown_sql(left) if a.kind == "list" else shown_sql(right)) + ", '…')"
            if "list" in (a.kind, b.kind)
            else ""
        )
        raise self.wrong(f"{what} compares {shown_sql(left)}, {KINDS[a.kind]}, with {KINDS[b.kind]}{hint}", left)

    def _is(self, node: Any) -> Expr:
        value = self._bind(node.this)
        if isinstance(node.expression, exp.Null):
            return call("is null", "boolean", [value])
        if isinstance(node.expression, exp.Boolean):
            same = call(
                "is not distinct",
                "boolean",
                [self.as_kind("boolean", value, node.this, "IS TRUE"), Constant("boolean", True)],
            )
            wanted = bool(node.expression.this)
            if wanted:
                return same
            return call(
                "is not distinct",
                "boolean",
                [self.as_kind("boolean", value, node.this, "IS"), Constant("boolean", False)],
            )
        raise self.wrong("IS is followed by NULL, TRUE or FALSE", node)

    def _in(self, node: Any) -> Expr:
        if not node.expressions:
            raise self.wrong("IN takes a list of values in parentheses", node)
        value = self._bind(node.this)
        others = [self.pair(value, self._bind(one), node.this, one, "IN") for one in node.expressions]
        value = next((one for one, _ in others if one.kind != value.kind), value)
        constants = [other for _, other in others if isinstance(other, Constant)]
        if len(constants) == len(others) and value.kind in COMPARABLE and not isinstance(value, Constant):
            wanted = [to_double(one) if value.kind == "double" else one for one in constants]
            values = tuple(one.value for one in wanted if isinstance(one, Constant) and one.value is not None)
            return call("in", "boolean", [value], values, len(values) < len(wanted))
        tests = [self._compare("=", node.this, one, node) for one in node.expressions]
        found = tests[0]
        for one in tests[1:]:
            found = call("or", "boolean", [found, one])
        return found

    def _like(self, node: Any, escape: Any | None) -> Expr:
        if not isinstance(node, exp.Like | exp.ILike):
            raise self.wrong("ESCAPE follows LIKE", node)
        value = self.as_kind("text", self._bind(node.this), node.this, "LIKE")
        pattern = self.option(node.expression, "text", "LIKE")
        mark = None if escape is None else self.option(escape, "text", "ESCAPE")
        if mark is not None and len(mark) != 1:
            raise self.wrong(f"ESCAPE takes one character, and not {mark!r}", escape)
        made = call("regexp", "boolean", [value], like_pattern(pattern, mark, isinstance(node, exp.ILike)))
        return call("not", "boolean", [made]) if node.args.get("negate") else made

    def _case(self, node: Any) -> Expr:
        whole = node.args.get("this")
        conditions = [
            self.condition(one.this) if whole is None else self._compare("=", whole, one.this, one)
            for one in node.args["ifs"]
        ]
        nodes = [one.args["true"] for one in node.args["ifs"]]
        last = node.args.get("default")
        values = [self._bind(one) for one in nodes]
        values.append(Constant("null", None) if last is None else self._bind(last))
        values = self.alike(values, [*nodes, last or node], "CASE")
        made = values[-1]
        for condition, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
            made = call("if", made.kind, [condition, value, made])
        return made

    # -- values ----------------------------------------------------------------------------------------------------------------

    def _arithmetic(self, word: str, node: Any) -> Expr:
        a, b = self._bind(node.this), self._bind(node.expression)
        if word == "-" and {a.kind, b.kind} <= {"moment", "text"} and "moment" in (a.kind, b.kind):
            a, b = self.pair(a, b, node.this, node.expression, "'-'")
        if word in "+-" and {a.kind, b.kind} <= {"moment", "interval"}:
            if a.kind == b.kind:
                if a.kind == "interval" or word == "-":
                    return call("moment - moment" if word == "-" else "+", "interval", [a, b])
                raise self.wrong("two moments cannot be added; - gives the interval between them", node)
            if word == "+":
                return call("moment + interval", "moment", [a, b])
            if a.kind == "moment":
                return call("moment - interval", "moment", [a, b])
        for one, side in ((a, node.this), (b, node.expression)):
            if one.kind not in (*NUMBERS, "null"):
                raise self.wrong(f"{word!r} takes numbers, and {self.said(side, one)}", side)
        a, b = self.pair(a, b, node.this, node.expression, f"{word!r}")
        if word == "/":
            return call("/", "double", [to_double(a), to_double(b)])
        return call(word, a.kind, [a, b])

    def _cast(self, node: Any) -> Expr:
        wanted = node.args["to"].this
        kind = _CASTS.get(getattr(wanted, "name", str(wanted)))
        value = self._bind(node.this)
        if kind is None:
            raise self.wrong(
                f"CAST to {shown_sql(node.args['to'])} is not part of this SQL; use text, bigint, double or timestamp",
                node,
            )
        if value.kind == kind:
            return value
        if value.kind == "null":
            return Constant(kind, None)
        if kind == "moment" and isinstance(value, Constant) and value.kind == "text":
            return self.literals.moment(value.value, node.this)
        if kind == "text" and value.kind in ("integer", "double", "boolean", "moment"):
            return call("to text", "text", [value])
        if kind in NUMBERS and value.kind in ("text", *NUMBERS):
            return to_double(value) if kind == "double" else call("to integer", "integer", [value])
        raise self.wrong(f"{self.said(node.this, value)}, which cannot become {KINDS[kind]}", node)

    # -- calls -----------------------------------------------------------------------------------------------------------------

    def _call(self, node: Any, name: str, arguments: list[Any]) -> Expr:
        if name in AGGREGATES:
            if self._aggregate is None:
                raise self.wrong(
                    f"{name}() is allowed in SELECT, HAVING and ORDER BY, and not inside another one", node
                )
            return self._aggregate(name, node)
        if (made := Calls(self).make(name, node, arguments)) is not None:
            return made
        if name in ("now", "current_timestamp", "current_date", "today", "localtimestamp", "get_current_timestamp"):
            raise self.wrong(_NOW, node)
        if name in ("random", "rand", "uuid", "gen_random_uuid"):
            raise self.wrong(
                f"{name}() differs from run to run, so a query that goes on after a restart cannot have it", node
            )
        raise self.wrong(f"there is no function {name}(){near(name, known_names())}", node)

    def _trim(self, node: Any) -> Expr:
        which = {"LEADING": "left", "TRAILING": "right"}.get(str(node.args.get("position") or "").upper(), "both")
        value = self.as_kind("text", self._bind(node.this), node.this, "trim()")
        characters = " " if node.expression is None else self.option(node.expression, "text", "trim()")
        return call("trim", "text", [value], which, characters)

    # -- kinds -----------------------------------------------------------------------------------------------------------------

    def as_kind(self, kind: str, value: Expr, node: Any, where: str) -> Expr:
        """A value of a kind; refuses others."""
        if value.kind == kind:
            return value
        if value.kind == "null":
            return Constant("double" if kind == "number" else kind, None)  # type: ignore[arg-type]
        if kind == "number" and value.kind in NUMBERS:
            return value
        if kind == "double" and value.kind == "integer":
            return to_double(value)
        if kind == "moment" and isinstance(value, Constant) and value.kind == "text":
            return self.literals.moment(value.value, node)
        raise self.wrong(f"{where} takes {KINDS[kind]}, and {self.said(node, value)}", node)

    def alike(self, values: list[Expr], nodes: list[Any], what: str) -> list[Expr]:
        """Values of one kind."""
        kinds = {one.kind for one in values} - {"null"}
        if kinds == {"integer", "double"}:
            return [to_double(one) if one.kind != "null" else Constant("double", None) for one in values]
        if len(kinds) > 1:
            odd = next(i for i, one in enumerate(values) if one.kind not in ("null", values[0].kind))
            raise self.wrong(
                f"{what} gives {KINDS[values[0].kind]} and {KINDS[values[odd].kind]}; make them one kind", nodes[odd]
            )
        kind = next(iter(kinds), "null")
        return [one if one.kind == kind else Constant(kind, None) for one in values]  # type: ignore[arg-type]

    def option(self, node: Any, kind: str, where: str) -> Any:
        """The value of a literal."""
        value = self.as_kind(kind, self._bind(node), node, where)
        if not isinstance(value, Constant) or value.value is None:
            raise self.wrong(f"{where} takes a literal here, and {shown_sql(node)} is none", node)
        return value.value

    def count(self, node: Any, where: str) -> int:
        """A literal number of characters."""
        count: int = self.option(node, "integer", where)
        if count < 0:
            raise self.wrong(f"{where} takes a number of characters, 0 or more", node)
        return count

    def unit(self, node: Any, known: Sequence[str]) -> str:
        """A part of a moment, such as hour."""
        name = str(node.this).lower() if isinstance(node, exp.Literal | exp.Var) else shown_sql(node).lower()
        name = name.removesuffix("s") if name not in known else name
        if name not in known:
            raise self.wrong(f"{name!r} is not a part of a moment{near(name, known)}; use {', '.join(known)}", node)
        return name

    def exactly(self, count: int, name: str, node: Any, arguments: list[Any]) -> list[Any]:
        """So many arguments; refuses others."""
        if len(arguments) != count:
            raise self.wrong(
                f"{name}() takes {count} argument{'s' * (count != 1)}, and here are {len(arguments)}", node
            )
        return arguments

    def said(self, node: Any, value: Expr) -> str:
        """What a node is, for messages."""
        return f"{shown(shown_sql(node))} is {KINDS[value.kind]}"
