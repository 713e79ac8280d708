"""The functions of the dialect: what each takes and gives. `sqlglot` has nodes of its own for some; `FROM_NODES` names those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from headrace.feeds.sql.expressions import Kind
from headrace.feeds.sql.kernels.times import PARTS


@dataclass(frozen=True)
class Function:
    """A function whose arguments have fixed kinds.

    Args:
        kernel: what computes it.
        takes: the kind of each argument; "number" is an integer or a double.
        gives: the kind of the value; "same" is that of the first argument.
        literal: how many of the last arguments must be literals: they are options of the kernel.
        optional: how many of the last arguments may be missing, and are `default` then.
    """

    kernel: str
    takes: tuple[str, ...]
    gives: Kind | str
    literal: int = 0
    optional: int = 0
    default: Any = None


FUNCTIONS: dict[str, Function] = {
    "lower": Function("lower", ("text",), "text"),
    "upper": Function("upper", ("text",), "text"),
    "replace": Function("replace", ("text", "text", "text"), "text", literal=2),
    "substr": Function("substr", ("text", "integer", "integer"), "text", literal=2, optional=1),
    "starts_with": Function("starts_with", ("text", "text"), "boolean"),
    "ends_with": Function("ends_with", ("text", "text"), "boolean"),
    "array_to_string": Function("array_to_string", ("list", "text"), "text", literal=1),
    "array_length": Function("array_length", ("list",), "integer"),
    "similarity": Function("similarity", ("text", "text"), "double"),
    "edit_distance": Function("edit_distance", ("text", "text"), "integer"),
    "abs": Function("abs", ("number",), "same"),
    "round": Function("round", ("double", "integer"), "double", literal=1, optional=1, default=0),
    "floor": Function("floor", ("double",), "double"),
    "ceil": Function("ceil", ("double",), "double"),
    "sqrt": Function("sqrt", ("double",), "double"),
    "dist": Function("dist", ("double",) * 4, "double"),
    "box": Function("box", ("double",) * 4, "box"),
    **{name: Function(name, ("moment",), "double" if name == "epoch" else "integer") for name in PARTS},
}

#: Functions that the binder makes itself, since their arguments are of several kinds.
SPECIAL = (
    "length", "trim", "ltrim", "rtrim", "left", "right", "contains", "regexp_matches", "concat", "coalesce", "nullif", "greatest",
    "least", "date_trunc", "extract", "date_part", "time_bucket", "window", "geo_km", "within_km", "intersects", "if",
)  # fmt: skip
AGGREGATES = ("count", "sum", "avg", "min", "max")
SAME = {
    "prefix": "starts_with",
    "suffix": "ends_with",
    "levenshtein": "edit_distance",
    "jaccard": "similarity",
    "tumble": "window",
    "list_contains": "contains",
    "len": "length",
    "substring": "substr",
    "ifnull": "coalesce",
    "dow": "dayofweek",
    "doy": "dayofyear",
    "isodow": "dayofweek",
    "strlen": "length",
    "ceiling": "ceil",
}
"""Other names that people know for the same."""

#: The name and the arguments, in order, of nodes that sqlglot makes of functions it knows.
FROM_NODES: dict[type, tuple[str, tuple[str, ...]]] = {
    exp.Lower: ("lower", ("this",)),
    exp.Upper: ("upper", ("this",)),
    exp.Length: ("length", ("this",)),
    exp.Substring: ("substr", ("this", "start", "length")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.Contains: ("contains", ("this", "expression")),
    exp.ArrayContains: ("contains", ("this", "expression")),
    exp.StartsWith: ("starts_with", ("this", "expression")),
    exp.EndsWith: ("ends_with", ("this", "expression")),
    exp.RegexpLike: ("regexp_matches", ("this", "expression")),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.Concat: ("concat", ("expressions",)),
    exp.Coalesce: ("coalesce", ("this", "expressions")),
    exp.Nullif: ("nullif", ("this", "expression")),
    exp.Greatest: ("greatest", ("this", "expressions")),
    exp.Least: ("least", ("this", "expressions")),
    exp.Abs: ("abs", ("this",)),
    exp.Round: ("round", ("this", "decimals")),
    exp.Floor: ("floor", ("this",)),
    exp.Ceil: ("ceil", ("this",)),
    exp.Sqrt: ("sqrt", ("this",)),
    exp.Levenshtein: ("edit_distance", ("this", "expression")),
    exp.ArrayToString: ("array_to_string", ("this", "expression")),
    exp.ArraySize: ("array_length", ("this",)),
    exp.TimestampTrunc: ("date_trunc", ("unit", "this")),
    exp.DateTrunc: ("date_trunc", ("unit", "this")),
    exp.Extract: ("extract", ("this", "expression")),
    exp.DateBin: ("time_bucket", ("this", "expression")),
    exp.Year: ("year", ("this",)),
    exp.Quarter: ("quarter", ("this",)),
    exp.Month: ("month", ("this",)),
    exp.Week: ("week", ("this",)),
    exp.Day: ("day", ("this",)),
    exp.DayOfMonth: ("day", ("this",)),
    exp.Hour: ("hour", ("this",)),
    exp.Minute: ("minute", ("this",)),
    exp.Second: ("second", ("this",)),
    exp.DayOfWeek: ("dayofweek", ("this",)),
    exp.DayOfYear: ("dayofyear", ("this",)),
    exp.TimeToUnix: ("epoch", ("this",)),
    exp.If: ("if", ("this", "true", "false")),
    exp.Count: ("count", ("this",)),
    exp.Sum: ("sum", ("this",)),
    exp.Avg: ("avg", ("this",)),
    exp.Min: ("min", ("this",)),
    exp.Max: ("max", ("this",)),
}


def called(node: Any) -> tuple[str, list[Any]] | None:
    """The name and the arguments of a node that is a call; None if it is none."""
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower()
        return SAME.get(name, name), list(node.expressions)
    if isinstance(node, exp.Case):
        return None
    known = FROM_NODES.get(type(node))
    if known is None:
        return None
    arguments: list[Any] = []
    for name in known[1]:
        value = node.args.get(name)
        arguments += value if isinstance(value, list) else [] if value is None else [value]
    return known[0], arguments


def known_names() -> list[str]:
    """All names of functions, for the word that was probably meant."""
    return [*FUNCTIONS, *SPECIAL, *AGGREGATES, *SAME]
