"""Steps: the scans and joins of a plan, with the columns that each carries for those after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.conditions import AllOf, Condition, predicate
from headrace.feeds.sql.expressions import Expr, PairTest
from headrace.feeds.sql.leads import Lead
from headrace.feeds.sql.plan import JoinStage, Named, Scan, Source


@dataclass(frozen=True)
class Written:
    """A condition of WHERE or ON, with the node that it was written as."""

    expr: Expr
    shown: str


@dataclass(frozen=True)
class Join:
    """A source that is joined with those before it: the leads that find pairs, and what else pairs must satisfy."""

    alias: str
    leads: tuple[Lead, ...]
    found_by: str
    asked: tuple[Written, ...]


def steps(
    sources: Sequence[Source], joins: Sequence[Join], selections: dict[str, Expr], final: set[str]
) -> tuple[tuple[Scan, ...], tuple[JoinStage, ...]]:
    """Scans and stages, with the columns that each must carry for those after it."""
    by_alias = {one.alias: one for one in sources}
    order = [sources[0].alias, *(join.alias for join in joins)]
    #: What is needed after join i: by what is selected, by the conditions of later joins, and by what these compare.
    needed = [set(final) for _ in range(len(joins) + 1)]
    for i in reversed(range(len(joins))):
        join = joins[i]
        mine = {name for one in join.asked for name in one.expr.columns}
        needed[i] = needed[i + 1] | mine
    computed: list[list[Named]] = [[] for _ in order]  # of the left side before join i, in the place of i
    right: list[list[Named]] = [[] for _ in joins]
    conditions: list[Condition] = []
    for i, join in enumerate(joins):
        left_names: list[str] = []
        right_names: list[str] = []
        parts: list[Condition] = []
        for k, lead in enumerate(join.leads):
            a = tuple(f"_left{i}_{k}_{n}" for n in range(len(lead.left)))
            b = tuple(f"_right{i}_{k}_{n}" for n in range(len(lead.right)))
            computed[i] += zip(a, lead.left, strict=True)
            right[i] += zip(b, lead.right, strict=True)
            left_names += a
            right_names += b
            if lead.kind != "equal":
                parts += lead.conditions(a, b)
        if join.leads[0].kind == "equal":
            parts = join.leads[0].conditions(tuple(left_names), tuple(right_names))
        for one in join.asked:
            left_columns = sorted(name for name in one.expr.columns if name.rsplit("__", 1)[0] != join.alias)
            right_columns = sorted(name for name in one.expr.columns if name.rsplit("__", 1)[0] == join.alias)
            parts.append(predicate(PairTest(one.expr), left_columns, right=right_columns))
        conditions.append(parts[0] if len(parts) == 1 else AllOf(tuple(parts)))

    def carried(level: int, aliases: Sequence[str], extra: Sequence[Named]) -> tuple[str, ...]:
        # What is computed later of these sources must be carried, too.
        later = {name for one in computed[level + 1 :] for _, expr in one for name in expr.columns}
        wanted = {name for name in needed[level] | later if name.rsplit("__", 1)[0] in aliases}
        return tuple(sorted(wanted | {f"{alias}__key" for alias in aliases}))

    scans = []
    for position, alias in enumerate(order):
        level = max(0, position - 1)
        extra = computed[0] if position == 0 else right[position - 1]
        if position == 0 and not joins:
            extra = []
        names = tuple(name for name in carried(level, [alias], extra) if name != f"{alias}__key")
        scans.append(Scan(by_alias[alias], selections.get(alias), names, tuple(extra)))
    stages = []
    for i, join in enumerate(joins):
        after = order[: i + 2]
        extra = computed[i + 1] if i + 1 < len(joins) else []
        shown = (join.found_by, " AND ".join(one.shown for one in join.asked))
        stages.append(
            JoinStage(
                scans[i + 1], conditions[i], join.leads[0].cell, carried(i + 1, after, extra), tuple(extra), shown
            )
        )
    return tuple(scans), tuple(stages)
