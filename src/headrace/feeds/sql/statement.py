"""Statement: the parts of a query as sqlglot reads them, checked for what this dialect has. SPEC §4.2"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import missing_extra
from headrace.feeds.sql.mistakes import BadQuery, near

try:
    import sqlglot
    from sqlglot import exp
except ModuleNotFoundError as error:
    raise missing_extra("SQL over feeds", error) from None

DIALECT = "duckdb"
LONGEST = 100_000  # characters of a query: parsing is not linear, and nobody writes so much
_EXPLAIN = re.compile(r"\s*explain\b", re.IGNORECASE)
_WITHIN = re.compile(r"\bwithin\s+(interval\s+)?'(?P<time>[^']*)'\s*;?\s*$", re.IGNORECASE)
_WINDOW = re.compile(r"'[^']*'|\"[^\"]*\"|\bwindow(?=\s*\()", re.IGNORECASE)
_KEYWORDS = (
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "ORDER",
    "HAVING",
    "LIMIT",
    "BETWEEN",
    "LIKE",
    "JOIN",
    "INTERVAL",
    "EXPLAIN",
    "WITHIN",
)
_RESEMBLES = 0.74  # similarity (difflib ratio): FORM is 0.75 of FROM, and no column is so near to a keyword
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "order", "limit"}
_NAMES = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "windows": "WINDOW",
    "qualify": "QUALIFY",
    "offset": "OFFSET",
    "laterals": "LATERAL",
    "into": "INTO",
}


@dataclass(frozen=True)
class Feed:
    """``rss('url') alias`` of a FROM."""

    alias: str
    url: str
    node: Any


@dataclass(frozen=True)
class Statement:
    """A SELECT, in parts. Nodes are sqlglot's; `text` is the query as it was written, in which they have positions."""

    text: str
    explain: bool
    within: str | None
    select: list[Any]
    feeds: list[Feed]
    conditions: list[Any]
    group: list[Any]
    having: Any | None
    order: list[Any]
    limit: int | None
    limit_node: Any | None


def read_statement(text: str) -> Statement:
    """Read a query; BadQuery where it is not SQL, or not this dialect's."""
    if not isinstance(text, str) or not text.strip():
        raise BadQuery("there is no query; write SELECT … FROM rss('…') a …", str(text))
    if len(text) > LONGEST:
        raise BadQuery(f"the query has {len(text):,} characters, and may have {LONGEST:,}", text)
    found = _EXPLAIN.match(text)
    shown = " " * found.end() + text[found.end() :] if found else text
    bound = _WITHIN.search(shown)
    if bound:
        shown = shown[: bound.start()]
    # A group that begins with window(…) would be read as the clause WINDOW, so the function has its other name meanwhile.
    shown = _WINDOW.sub(lambda found: "tumble" if found[0][:1] in "wW" else found[0], shown)
    tree = _parse(shown, text)
    if not isinstance(tree, exp.Select):
        begin = len(shown) - len(shown.lstrip())
        word = shown[begin:].split(None, 1)[0]
        raise BadQuery(f"only SELECT is run here, and this is {_kind(tree)}", text, begin, len(word))
    for name, value in tree.args.items():
        if value and name not in _CLAUSES:
            node = value[0] if isinstance(value, list) else value
            called = _NAMES.get(name, name.strip("_").replace("_", " ").upper())
            raise mistake(f"{called} is not part of this SQL", node, text)
    feeds, conditions = _sources(tree, text)
    if where := tree.args.get("where"):
        conditions += _parts(where.this)
    for node in tree.walk():
        if isinstance(node, exp.Subquery | exp.Select) and node is not tree:
            raise mistake("a query inside a query is not part of this SQL; name all feeds in one FROM", node, text)
        if isinstance(node, exp.Window):
            raise mistake("OVER (…) is not part of this SQL; use GROUP BY … , window(a.seen, '1 hour')", node, text)
        if isinstance(node, exp.Placeholder | exp.Parameter):
            raise mistake("there are no parameters; write the value itself", node, text)
    group = tree.args.get("group")
    if group and {name for name, value in group.args.items() if value} - {"expressions"}:
        raise mistake("GROUP BY takes expressions and a window, without ROLLUP, CUBE, ALL or sets", group, text)
    limit_node = tree.args.get("limit")
    return Statement(
        text=text,
        explain=found is not None,
        within=bound["time"] if bound else None,
        select=list(tree.expressions),
        feeds=feeds,
        conditions=conditions,
        group=list(group.expressions) if group else [],
        having=tree.args["having"].this if tree.args.get("having") else None,
        order=list(tree.args["order"].expressions) if tree.args.get("order") else [],
        limit=_limit(limit_node, text),
        limit_node=limit_node,
    )


def mistake(reason: str, node: Any, text: str) -> BadQuery:
    """A BadQuery at the place of a node: of its own token, or of the first token below it that has a place."""
    at, length = place(node)
    return BadQuery(reason, text, at, length)


def place(node: Any) -> tuple[int | None, int]:
    """Where a node begins in the text, and the length of its first token; None where no token of it has a place."""
    own = [(one.meta["start"], one.meta["end"]) for one in node.walk() if "start" in one.meta]
    if not own:
        parent = node.parent
        return place(parent) if parent is not None else (None, 1)
    begin, end = min(own)
    return begin, end - begin + 1


def shown_sql(node: Any) -> str:
    """A node as SQL, on one line."""
    return re.sub(r"\btumble(?=\()", "WINDOW", str(node.sql(DIALECT, comments=False)), flags=re.IGNORECASE)


def _parse(shown: str, text: str) -> Any:
    try:
        trees = [tree for tree in sqlglot.parse(shown, dialect=DIALECT) if tree is not None]
    except sqlglot.errors.ParseError as error:
        first = error.errors[0] if error.errors else {}
        token, said = first.get("highlight") or "", str(first.get("description") or "")
        at = _offset(text, first.get("line"), first.get("col"), len(token))
        if said.startswith("Required keyword"):
            what = f"something is missing at {token!r}"
        else:
            what = f"the query cannot be read at {token!r}"
            if said.startswith(("Expecting", "The number")):
                what += f": {said[0].lower()}{said[1:]}"
        what += _misspelt(shown)
        raise BadQuery(what, text, at, len(token) or 1) from None
    except sqlglot.errors.SqlglotError as error:
        at = _unclosed(shown)
        said = "a quote is not closed" if at is not None else f"the query cannot be read: {str(error).splitlines()[0]}"
        raise BadQuery(said, text, at) from None
    except RecursionError:
        raise BadQuery("the query is nested too deeply", text) from None
    if len(trees) != 1:
        second = trees[1] if len(trees) > 1 else None
        if second is None:
            raise BadQuery("there is no query; write SELECT … FROM rss('…') a …", text)
        raise mistake("one query at a time: a second statement begins here", second, text)
    return trees[0]


def _misspelt(text: str) -> str:
    """A keyword that a word of the query resembles, as the end of a message."""
    for word in re.findall(r"\b[A-Za-z]{3,}\b", re.sub(r"'[^']*'|\"[^\"]*\"", "", text)):
        close = difflib.get_close_matches(word.upper(), _KEYWORDS, n=1, cutoff=_RESEMBLES)
        if close and word.upper() not in _KEYWORDS:
            return f"; is {word!r} meant to be {close[0]}?"
    return ""


def _unclosed(text: str) -> int | None:
    """The place of a quote that is never closed, where that is the trouble."""
    for quote in ("'", '"'):
        if text.count(quote) % 2:
            return text.rfind(quote)
    return None


def _offset(text: str, line: int | None, column: int | None, token: int) -> int | None:
    """The position of a token that ends at a line and column of sqlglot."""
    if line is None or column is None:
        return None
    lines = text.split("\n")
    return sum(len(one) + 1 for one in lines[: line - 1]) + max(0, column - token)


def _kind(tree: Any) -> str:
    if isinstance(tree, exp.Command):
        return str(tree.this).upper()
    return {"Union": "a UNION", "Table": "a table"}.get(type(tree).__name__, type(tree).__name__.upper())


def _sources(tree: Any, text: str) -> tuple[list[Feed], list[Any]]:
    """The feeds of FROM and of joins, and the conditions of ON and USING."""
    if tree.args.get("from_") is None:
        raise mistake("there is no FROM; write FROM rss('…') a", tree, text)
    feeds = [_feed(tree.args["from_"].this, text, [])]
    conditions: list[Any] = []
    joins = list(tree.args.get("joins") or [])
    for join in joins + list(tree.args["from_"].this.args.get("joins") or []):
        word = next((str(join.args[name]) for name in ("method", "side", "kind") if join.args.get(name)), "")
        if word.upper() not in ("", "INNER", "CROSS"):
            raise mistake(
                f"{word.upper()} JOIN is not part of this SQL: a feed has no end, so that no item can be said to have no partner;"
                " use JOIN … ON",
                join.this,
                text,
            )
        feeds.append(_feed(join.this, text, [one.alias for one in feeds]))
        if join.args.get("on"):
            conditions += _parts(join.args["on"])
        for name in join.args.get("using") or []:
            left, right = (
                exp.column(name.copy() if isinstance(name, exp.Identifier) else name.this.copy(), one.alias)
                for one in (feeds[0], feeds[-1])
            )
            conditions.append(exp.EQ(this=left, expression=right))
    return feeds, conditions


def _feed(table: Any, text: str, taken: list[str]) -> Feed:
    if isinstance(table, exp.Subquery):
        raise mistake("a query inside a query is not part of this SQL; name all feeds in one FROM", table, text)
    called = table.this if isinstance(table, exp.Table) else None
    if not isinstance(called, exp.Anonymous):
        name = table.name if isinstance(table, exp.Table) else shown_sql(table)
        raise mistake(f"{name!r} is not a feed; write rss('url') with an alias", table, text)
    if str(called.this).lower() != "rss":
        raise mistake(f"{called.this}() is not a source of items; write rss('url')", called, text)
    if len(called.expressions) != 1:
        raise mistake(f"rss() takes one address, and here are {len(called.expressions)}", called, text)
    given = called.expressions[0]
    if isinstance(given, exp.Literal) and given.is_string:
        url = given.this
    elif isinstance(given, exp.Column) and isinstance(given.this, exp.Identifier) and given.this.quoted:
        url = given.this.this  # the thesis writes rss("http://…")
    else:
        raise mistake("rss() takes an address in quotes, such as rss('https://example.org/feed.xml')", given, text)
    if not url.strip():
        raise mistake("rss() has an empty address", given, text)
    alias = table.alias or ("item" if not taken else "")
    if not alias:
        raise mistake(f"rss({url!r}) has no alias; write rss({url!r}) b", called, text)
    if alias.lower() in (one.lower() for one in taken):
        raise mistake(f"the alias {alias!r} is given twice", table.args["alias"], text)
    if not re.fullmatch(r"[A-Za-z]\w*", alias, re.ASCII):
        raise mistake(f"{alias!r} is not an alias; use letters, digits and _", table, text)
    return Feed(alias, url.strip(), called)


def _parts(condition: Any) -> list[Any]:
    """The conditions that AND connects."""
    return list(_walk_and(condition))


def _walk_and(node: Any) -> Iterator[Any]:
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, exp.Paren):
            stack.append(one.this)
        elif isinstance(one, exp.And):
            stack += [one.expression, one.this]
        else:
            yield one


def _limit(node: Any, text: str) -> int | None:
    if node is None:
        return None
    value = node.expression if isinstance(node, exp.Limit) else None
    if isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdigit():
        return int(value.this)
    raise mistake("LIMIT takes a whole number", node, text)


__all__ = ["Feed", "Statement", "mistake", "near", "place", "read_statement", "shown_sql"]
