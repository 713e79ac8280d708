"""Planner: from the text of a query to its plan: selections before joins, joins left-deep, other conditions asked of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlglot import exp

from headrace.errors import BadInput
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.sql.binder import Binder
from headrace.feeds.sql.drawing import Node, draw
from headrace.feeds.sql.expressions import NUMBERS, Column, Constant, Expr, call
from headrace.feeds.sql.functions import called
from headrace.feeds.sql.grouping import Aggregate, Grouping
from headrace.feeds.sql.leads import RANKS, aliases_of, find_lead
from headrace.feeds.sql.mistakes import BadQuery
from headrace.feeds.sql.names import column_name
from headrace.feeds.sql.plan import JoinStage, Named, Ordering, QueryPlan, Scan, Source
from headrace.feeds.sql.result_rows import PLACED
from headrace.feeds.sql.statement import Statement, mistake, read_statement, shown_sql
from headrace.feeds.sql.steps import Join, Written, steps
from headrace.units import format_duration, parse_duration

_HOW = "use =, dist(…) < c, within_km(a, b, c), intersects(a, b), similarity(…) > c or edit_distance(…) <= c"


def parse_query(text: str, *, once: bool = False, within_time: str | float | None = None) -> QueryPlan:
    """Parse, check and plan a query; raises BadQuery (line, column, message) where it is wrong.

    Args:
        text: the query.
        once: whether it is run once over what its feeds have now; a query that needs an end is refused otherwise.
        within_time: items of a result are seen at most so far apart; ``WITHIN '1 day'`` at the end of the query says the same.

    Example:
        >>> from headrace.feeds.sql import parse_query
        >>> print(parse_query("SELECT a.title FROM rss('https://example.org/feed') a WHERE a.title LIKE '%flood%'").explain())
        result: a.title
        └─ select: a.title LIKE '%flood%'
           └─ rss('https://example.org/feed') a
    """
    return Planner(read_statement(text), once, within_time).plan()


class Planner:
    """Plans one query.

    Args:
        statement: the query in parts.
        once, within_time: see parse_query.
    """

    def __init__(self, statement: Statement, once: bool, within_time: str | float | None) -> None:
        self.statement, self.once = statement, once
        self._binder = Binder(statement.text, statement.feeds)
        self._within = self._bound(within_time)
        self._aggregates: list[Aggregate] = []

    def plan(self) -> QueryPlan:
        """Plan the query."""
        statement = self.statement
        sources = tuple(Source(one.alias, one.url) for one in statement.feeds)
        conditions = [Written(self._binder.condition(node), shown_sql(node)) for node in statement.conditions]
        joins = self._joins([one.alias for one in sources], conditions)
        grouping, output = self._grouping(bool(joins))
        select = self._select(output, grouping)
        ordering = self._ordering(output, select)
        why = self._needs_an_end(grouping)
        final = {name for _, expr in select for name in expr.columns}
        if grouping is None:
            final |= {column_name(one.alias, name) for one in sources for name in (*PLACED, "key")}
        else:
            final = {name for key in grouping.keys for name in key.columns}
            final |= {name for one in grouping.aggregates if one.argument is not None for name in one.argument.columns}
        if ordering is not None and grouping is None:
            final |= {name for expr, _ in ordering.by for name in expr.columns}
        selections = self._selections(sources, conditions)
        scans, stages = steps(sources, joins, selections, final)
        return QueryPlan(
            text=statement.text,
            sources=sources,
            select=select,
            scans=scans,
            stages=stages,
            grouping=grouping,
            ordering=ordering,
            explained=statement.explain,
            within_time=self._within,
            snapshot_only=why,
            drawing=draw(self._drawn(scans, stages, select, grouping, ordering, conditions)),
        )

    def _wrong(self, reason: str, node: Any) -> BadQuery:
        return mistake(reason, node, self.statement.text)

    def _bound(self, option: str | float | None) -> float | None:
        text = self.statement.within
        if text is None:
            return None if option is None else parse_duration(option, name="within_time")
        try:
            return parse_duration(text, name="WITHIN")
        except BadInput as error:
            raise BadQuery(
                str(error), self.statement.text, self.statement.text.rfind(f"'{text}'"), len(text) + 2
            ) from None

    # -- conditions ------------------------------------------------------------------------------------------------------------

    def _selections(self, sources: Sequence[Source], conditions: Sequence[Written]) -> dict[str, Expr]:
        """What items of each source must satisfy. A condition without a column is asked of the first."""
        found: dict[str, Expr] = {}
        for one in conditions:
            aliases = aliases_of(one.expr)
            if len(aliases) > 1 or (isinstance(one.expr, Constant) and one.expr.value is True):
                continue
            alias = next(iter(aliases), sources[0].alias)
            found[alias] = call("and", "boolean", [found[alias], one.expr]) if alias in found else one.expr
        return found

    def _joins(self, aliases: list[str], conditions: Sequence[Written]) -> list[Join]:
        """The order of joins: sources as FROM has them, but each only when a condition finds its pairs."""
        joined, waiting, joins = aliases[:1], aliases[1:], []
        done: set[int] = set()
        while waiting:
            for alias in waiting:
                leads = [(i, lead) for i, one in enumerate(conditions) if (lead := find_lead(one.expr, joined, alias))]
                if leads:
                    break
            else:
                self._refuse_product(joined, waiting, conditions)
            best = min(RANKS.index(lead.kind) for _, lead in leads)
            taken = [(i, lead) for i, lead in leads if RANKS.index(lead.kind) == best]
            taken = taken if taken[0][1].kind == "equal" else taken[:1]
            joined, waiting = [*joined, alias], [one for one in waiting if one != alias]
            now = {
                i
                for i, one in enumerate(conditions)
                if len(aliases_of(one.expr)) > 1 and aliases_of(one.expr) <= set(joined)
            }
            exact = {i for i, lead in taken if lead.exact}
            asked = [conditions[i] for i in sorted(now - done - exact)]
            asked += self._near_in_time(joined[:-1], alias)
            done |= now
            shown = " AND ".join(conditions[i].shown for i, _ in taken)
            joins.append(Join(alias, tuple(lead for _, lead in taken), shown, tuple(asked)))
        return joins

    def _near_in_time(self, joined: Sequence[str], alias: str) -> list[Written]:
        """The bound on the moments at which items are seen, between one source and each before it."""
        if self._within is None:
            return []
        most = timedelta(seconds=self._within)
        found = []
        for other in joined:
            apart = call(
                "moment - moment", "interval", [self._binder.column(alias, "seen"), self._binder.column(other, "seen")]
            )
            bounds = [
                call(">=", "boolean", [apart, Constant("interval", -most)]),
                call("<=", "boolean", [apart, Constant("interval", most)]),
            ]
            shown = f"{other}.seen and {alias}.seen within {format_duration(self._within)}"
            found.append(Written(call("and", "boolean", bounds), shown))
        return found

    def _refuse_product(self, joined: list[str], waiting: list[str], conditions: Sequence[Written]) -> None:
        node = next(one.node for one in self.statement.feeds if one.alias == waiting[0])
        between = [
            one.shown for one in conditions if waiting[0] in aliases_of(one.expr) and len(aliases_of(one.expr)) > 1
        ]
        others = " and ".join(joined)
        if between:
            raise self._wrong(
                f"{between[0]} cannot find the pairs of {waiting[0]} and {others} by itself; beside it {_HOW}", node
            )
        raise self._wrong(
            f"nothing connects {waiting[0]} with {others}: every item would meet every other, without end; {_HOW}", node
        )

    # -- what is selected ------------------------------------------------------------------------------------------------------

    def _grouping(self, joined: bool) -> tuple[Grouping | None, Binder]:
        """GROUP BY, and the binder of what comes after it."""
        statement = self.statement
        nodes = [*statement.select, *([statement.having] if statement.having is not None else []), *statement.order]
        counts = any(
            found and found[0] in ("count", "sum", "avg", "min", "max")
            for node in nodes
            for one in node.walk()
            if (found := called(one))
        )
        if not statement.group and not counts:
            if statement.having is not None:
                raise self._wrong("HAVING needs GROUP BY", statement.having)
            return None, self._binder
        named = {one.alias.lower(): one.this for one in statement.select if isinstance(one, exp.Alias)}
        keys: dict[str, Expr] = {}
        exprs: list[Expr] = []
        for node in statement.group:
            if isinstance(node, exp.Literal) and not node.is_string and 0 < int(node.this) <= len(statement.select):
                node = statement.select[int(node.this) - 1]
                node = node.this if isinstance(node, exp.Alias) else node
            elif isinstance(node, exp.Column) and not node.args.get("table") and node.name.lower() in named:
                node = named[node.name.lower()]
            expr = self._binder.bind(node)
            if expr.kind in ("box", "null"):
                raise self._wrong("GROUP BY takes texts, numbers, moments, lists and windows", node)
            keys[shown_sql(node).lower()] = Column(expr.kind, f"_key{len(exprs)}")
            exprs.append(expr)
        after = Binder(statement.text, statement.feeds, self._aggregate, keys)
        having = None if statement.having is None else after.condition(statement.having)
        # What is selected and sorted by may have further aggregates, so both are bound before the grouping is made.
        for one in statement.select:
            after.bind(one.this if isinstance(one, exp.Alias) else one)
        for one in statement.order:
            self._order_key(one, after, {}, bind_only=True)
        grouping = Grouping(tuple(exprs), tuple(self._aggregates), having, self._within or 0.0)
        if grouping.window is not None and joined and self._within is None and not self.once:
            raise self._wrong(
                "a window over a join cannot end while a partner may still come; bound the time between items, as in WITHIN"
                " '1 day' at the end of the query",
                statement.group[0],
            )
        return grouping, after

    def _aggregate(self, name: str, node: Any) -> Expr:
        argument = node.this if not isinstance(node, exp.Anonymous) else node.expressions[0]
        if isinstance(argument, exp.Distinct):
            raise self._wrong(
                f"{name}(DISTINCT …) is not part of this SQL: it would have to remember every value", node
            )
        if node.args.get("expressions"):
            raise self._wrong(f"{name}() takes one argument", node)
        expr = None if isinstance(argument, exp.Star) else self._binder.bind(argument)
        if expr is None and name != "count":
            raise self._wrong(f"{name}(*) has no meaning; name a column", node)
        if expr is not None and name in ("sum", "avg") and expr.kind not in NUMBERS:
            raise self._wrong(f"{name}() takes a number, and {shown_sql(argument)} is none", argument)
        if expr is not None and expr.kind in ("list", "box", "boolean", "null") and name != "count":
            raise self._wrong(f"{name}() takes numbers, moments or texts, and {shown_sql(argument)} is none", argument)
        made = Aggregate(name, expr)  # type: ignore[arg-type]
        if made not in self._aggregates:
            self._aggregates.append(made)
        return Column(made.kind, f"_agg{self._aggregates.index(made)}")

    def _select(self, binder: Binder, grouping: Grouping | None) -> tuple[Named, ...]:
        found: list[Named] = []
        for node in self.statement.select:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                found += self._star(node, grouping)
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            expr = binder.bind(inner)
            if expr.kind == "null":
                raise self._wrong("NULL alone has no type; write CAST(NULL AS text)", inner)
            name = node.alias if isinstance(node, exp.Alias) else self._name(inner)
            names = [one.lower() for one, _ in found]
            if name.lower() in names:
                if isinstance(node, exp.Alias):
                    raise self._wrong(f"two columns are called {name!r}; rename one", node.args["alias"])
                name = next(f"{name}_{i}" for i in range(2, 1000) if f"{name}_{i}".lower() not in names)
            if name.startswith("_"):
                raise self._wrong(
                    f"{name!r} begins with _, as the columns do that results have by themselves; rename it", node
                )
            found.append((name, expr))
        return tuple(found)

    def _star(self, node: Any, grouping: Grouping | None) -> list[Named]:
        if grouping is not None:
            raise self._wrong("* has no meaning beside GROUP BY; name what is grouped by", node)
        if (node.this if isinstance(node, exp.Column) else node).args.get("except_") or (node.args.get("replace")):
            raise self._wrong("* EXCEPT and * REPLACE are not part of this SQL; name the columns", node)
        aliases = [one.alias for one in self.statement.feeds]
        if isinstance(node, exp.Column):
            wanted = node.args["table"].this
            if wanted.lower() not in (one.lower() for one in aliases):
                raise self._wrong(f"there is no alias {wanted!r}; FROM has {', '.join(aliases)}", node)
            aliases = [one for one in aliases if one.lower() == wanted.lower()]
        return [
            (f"{alias}.{name}", self._binder.column(alias, name)) for alias in aliases for name in ITEM_SCHEMA.names
        ]

    def _name(self, node: Any) -> str:
        """What a column without AS is called: alias.column, or the name of the function with ()."""
        if isinstance(node, exp.Column):
            bound = self._binder.bind(node)
            if isinstance(bound, Column):
                return ".".join(bound.name.rsplit("__", 1))
            return ".".join(
                one.this for one in (node.args.get("db"), node.args.get("table"), node.this) if one is not None
            )
        found = called(node)
        return f"{found[0]}()" if found else shown_sql(node)

    # -- snapshots -------------------------------------------------------------------------------------------------------------

    def _ordering(self, binder: Binder, select: tuple[Named, ...]) -> Ordering | None:
        statement = self.statement
        if not statement.order and statement.limit is None:
            return None
        named = {name.lower(): expr for name, expr in select}
        by = []
        for node in statement.order:
            expr = self._order_key(node, binder, named, select=select)
            assert expr is not None
            if expr.kind in ("list", "box", "null"):
                raise self._wrong("ORDER BY takes texts, numbers and moments", node)
            by.append((expr, bool(node.args.get("desc"))))
        return Ordering(tuple(by), statement.limit)

    def _order_key(
        self,
        node: Any,
        binder: Binder,
        named: dict[str, Expr],
        *,
        select: tuple[Named, ...] = (),
        bind_only: bool = False,
    ) -> Expr | None:
        if node.args.get("nulls_first"):
            raise self._wrong("NULLS FIRST is not part of this SQL: nulls come last", node)
        inner = node.this
        ordinal = isinstance(inner, exp.Literal) and not inner.is_string
        by_name = isinstance(inner, exp.Column) and not inner.args.get("table")
        aliases = {one.alias.lower() for one in self.statement.select if isinstance(one, exp.Alias)}
        if bind_only:
            return None if ordinal or (by_name and inner.name.lower() in aliases) else binder.bind(inner)
        if ordinal:
            number = int(inner.this) if str(inner.this).isdigit() else 0
            if not 1 <= number <= len(select):
                raise self._wrong(f"ORDER BY {inner.this}: there are {len(select)} columns", node)
            return select[number - 1][1]
        if by_name and inner.name.lower() in named:
            return named[inner.name.lower()]
        return binder.bind(inner)

    def _needs_an_end(self, grouping: Grouping | None) -> str | None:
        """Why the query can be run only once; refuses it otherwise."""
        statement = self.statement
        why: str | None = None
        node = None
        if statement.order:
            why, node = (
                "ORDER BY sorts what there is, and a query that runs for ever has always more to come",
                statement.order[0],
            )
        elif statement.limit is not None:
            why, node = "LIMIT would end a query that runs for ever", statement.limit_node
        elif grouping is not None and grouping.window is None:
            why = "GROUP BY without a window of time has no result before the end, and feeds have none"
            node = statement.group[0] if statement.group else statement.select[0]
        if why is None or self.once:
            return why
        cure = (
            "; add window(a.seen, '1 hour') to GROUP BY, or run it once"
            if grouping is not None and grouping.window is None
            else "; run it once"
        )
        raise self._wrong(f"{why}{cure} (headrace sql --once)", node)

    # -- the drawing -----------------------------------------------------------------------------------------------------------

    def _drawn(
        self,
        scans: Sequence[Scan],
        stages: Sequence[JoinStage],
        select: Sequence[Named],
        grouping: Grouping | None,
        ordering: Ordering | None,
        conditions: Sequence[Written],
    ) -> Node:
        def leaf(scan: Scan) -> Node:
            source = scan.source
            feed = Node(f"rss({source.url!r}) {source.alias}")
            mine = [one.shown for one in conditions if aliases_of(one.expr) == {source.alias}]
            mine += [one.shown for one in conditions if not aliases_of(one.expr) and scan is scans[0]]
            return Node("select: " + " AND ".join(mine), (feed,)) if mine else feed

        top = leaf(scans[0])
        for stage, scan in zip(stages, scans[1:], strict=True):
            lead, asked = stage.shown
            top = Node(f"join: {lead}" + (f"; asked of each pair: {asked}" if asked else ""), (top, leaf(scan)))
        if grouping is not None:
            keys = ", ".join(shown_sql(node) for node in self.statement.group) or "all rows"
            top = Node(f"group: {keys}", (top,))
            if self.statement.having is not None:
                top = Node(f"having: {shown_sql(self.statement.having)}", (top,))
        top = Node("result: " + ", ".join(name for name, _ in select), (top,))
        if ordering is not None:
            words = [f"order: {', '.join(shown_sql(node) for node in self.statement.order)}"] if ordering.by else []
            words += [f"limit: {ordering.limit}"] if ordering.limit is not None else []
            top = Node("; ".join(words), (top,))
        return top
