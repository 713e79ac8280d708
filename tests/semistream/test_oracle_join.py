"""Every semi-stream join against brute force and against DuckDB."""

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.semistream import AdaptiveJoin
from tests.support.join_oracle import KEY_KINDS, join, make_case, table, tuples

HOWS = ["inner", "left", "semi", "anti"]


def create(path: Path, case, random) -> hr.Relation:
    return hr.Relation.create(
        path / "r",
        case.rows,
        key=case.key,
        shards=random.choice([1, 2, 3]),
        page_size="4KiB",
        fill=random.choice([0.3, 0.8, 1.0]),
        overwrite=True,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_oracle_random_cases_give_the_brute_force_result_in_the_order_asked_for(ram_path, seed):
    case = make_case(seed)
    random = case.random
    relation = create(ram_path, case, random)
    rows = case.rows
    if random.random() < 0.5:  # pages moved by an update must not change anything
        ups = table(case.kind, [random.randrange(30) for _ in range(random.choice([1, 10, 100]))], random, tag="u")
        relation.apply(upserts=ups)
        relation = relation.refresh()
        scanned = list(relation.scan())
        rows = pa.Table.from_batches(scanned) if scanned else rows.slice(0, 0)
    how = random.choice(HOWS)
    columns = random.choice([None, ["s"], [], ["b", "v"]])
    memory, order = random.choice(["500KiB", "1MiB", "8MiB"]), random.choice(["stream", "any"])
    whole = random.random() < 0.4
    op = AdaptiveJoin(relation, on=case.key, memory=memory, how=how, columns=columns, order=order, whole=whole)
    got = tuples(op.run(case.batches))
    expected = join(rows, case.batches, case.key, how, ["v", "s", "b"] if columns is None else columns)
    if order == "any":
        got, expected = sorted(got, key=repr), sorted(expected, key=repr)
    assert len(got) == len(expected), f"seed {seed}, {case.kind}, {how}"
    assert got == expected, f"seed {seed}, {case.kind}, {how}"
    op.stats.check()
    assert op.stats.results == len(expected)
    assert op.budget.peak <= op.budget.limit


def _naive(rows: pa.Table) -> pa.Table:
    """Timestamps without a zone: DuckDB needs an extension for those with one."""
    types = [pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type for f in rows.schema]
    return rows.cast(pa.schema([pa.field(f.name, t) for f, t in zip(rows.schema, types, strict=True)]))


@pytest.mark.parametrize("kind", sorted(KEY_KINDS))
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("duplicates", ["unique", "some", "giant"])
def test_oracle_duckdb_agrees_for_every_key_type_and_duplicate_pattern(ram_path, kind, how, duplicates):
    case = make_case(7)
    numbers = {
        "unique": list(range(150)),
        "some": [i * i % 90 for i in range(300)],
        "giant": [5] * 400 + list(range(0, 100, 3)),
    }[duplicates]
    rows = table(kind, numbers, case.random, tag="r")
    stream = table(kind, [(i * 7) % 120 for i in range(90)], case.random, nulls=0.1, tag="s")
    key = [name for name in rows.schema.names if name.startswith("k")]
    relation = hr.Relation.create(ram_path / "r", rows, key=key, page_size="4KiB")
    got, held_whole = (
        Counter(tuples(op.run(stream.combine_chunks().to_batches())))
        for op in (AdaptiveJoin(relation, on=key, memory="1MiB", how=how, whole=whole) for whole in (False, True))
    )
    on = " and ".join(f"stream.{k} = rows.{k}" for k in key)
    exists = f"exists (select 1 from rows where {on})"
    sql = {
        "inner": f"select stream.*, rows.v, rows.s, rows.b from stream join rows on {on}",
        "left": f"select stream.*, rows.v, rows.s, rows.b from stream left join rows on {on}",
        "semi": f"select * from stream where {exists}",
        "anti": f"select * from stream where not {exists}",
    }[how]
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as db:
        db.register("rows", _naive(rows))
        db.register("stream", _naive(stream))
        answer = db.sql(sql).to_arrow_table()
    names = [f"c{i}" for i in range(answer.num_columns)]
    fields = [
        pa.field(n, f.type) for n, f in zip(names, [*stream.schema, *rows.select(["v", "s", "b"]).schema], strict=False)
    ]
    expected = Counter(tuples(answer.rename_columns(names).cast(pa.schema(fields)).to_batches()))
    assert got == expected
    assert held_whole == expected
