"""Small relations, operators of the MESHJOIN family with sizes that make some iterations, and a loop over all pairs."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.conditions import parse_on
from headrace.relation import Disk
from headrace.semistream import AMeshJoin, MeshJoin, RMeshJoin
from tests.support.condition_cases import holds

HOWS = ["inner", "left", "semi", "anti"]


def relation_of(tmp_path, rows: pa.Table, key: Any = "k", **options: Any) -> hr.Relation:
    return hr.Relation.create(
        tmp_path / "r", rows, key=key, page_size="4KiB", overwrite=True, disk=Disk("simulated"), **options
    )


def expected(stream, rows, condition, how, columns, on=None) -> Counter:
    """What a join must give, by a loop over all pairs."""
    out, rights = [], rows.to_pylist()
    pairs = [] if on is None else list(zip(parse_on(on).left, parse_on(on).right, strict=True))
    for left in stream.to_pylist():
        same = [r for r in rights if all(left[x] is not None and left[x] == r[y] for x, y in pairs)]
        found = [r for r in same if condition is None or holds(condition, left, r)]
        base = tuple(left.values())
        if how in ("semi", "anti"):
            out += [base] if bool(found) == (how == "semi") else []
        else:
            out += [base + tuple(r[c] for c in columns) for r in found]
            out += [base + (None,) * len(columns)] if how == "left" and not found else []
    return Counter(map(repr, out))


def joined(op, stream: pa.Table, cut: int) -> Counter:
    """What an operator gives for a stream in batches of so many rows."""
    batches = [stream.slice(a, cut).combine_chunks().to_batches() for a in range(0, stream.num_rows, cut)]
    out = [tuple(row.values()) for batch in op.run(b for some in batches for b in some) for row in batch.to_pylist()]
    op.stats.check()
    assert op.budget.peak <= op.budget.limit
    return Counter(map(repr, out))


def operator(random: Random, relation: hr.Relation, **options: Any):
    """One of the family, with sizes that make some iterations."""
    kind = random.choice([MeshJoin, AMeshJoin, RMeshJoin])
    if kind is AMeshJoin:
        sizes = Random(random.random())
        return AMeshJoin(relation, tuner=lambda op: (sizes.choice([1, 7, 100]), sizes.choice([1, 2, 5])), **options)
    return kind(relation, w=random.choice([1, 7, 100]), b=random.choice([1, 2, 50]), **options)


def checked(tmp_path, random, stream, rows, condition, how, on=None, key="k") -> Counter:
    """Join, and compare with the loop over all pairs."""
    relation = relation_of(tmp_path, rows, key=key, shards=random.choice([1, 2]))
    op = operator(random, relation, on=on, memory="2MiB", how=how, condition=condition)
    # The key comes first in a result, and columns that are joined on do not come again.
    joined_on = () if on is None else parse_on(on).right
    order = [*relation.key, *(name for name in rows.schema.names if name not in relation.key)]
    columns = [name for name in order if name not in joined_on]
    got = joined(op, stream, random.choice([3, 40, 1000]))
    wanted = expected(stream, rows, condition, how, columns, on)
    assert got == wanted, f"{type(op).__name__}, {condition}, {how}: {got - wanted} too many, {wanted - got} missing"
    return got
