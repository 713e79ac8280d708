"""Pipelines with steps that sample, run on files to the end, against DuckDB where all is kept."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from headrace.pipeline.build import add_step
from headrace.pipeline.sources import stand_in
from headrace.pipeline.spark_check import describe_with_spark
from headrace.spark.plan import Plan
from tests.support.pipeline_place import SALES, SCHEMA

pytestmark = pytest.mark.spark

PAID = """
name = "sales"
every = "10ms"
[source]
format = "json"
path = "incoming"
required = ["sale"]
[source.columns]
sale = "long"
shop = "string"
t = "timestamp"
[sources.payments]
format = "json"
path = "payments"
required = ["sale"]
[sources.payments.columns]
sale = "long"
amount = "double"
t = "timestamp"
[[step]]
STEP
[sink]
format = "delta"
path = "warehouse"
"""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BY_TIME = 'window = "10 minutes"\ntime = "t"\nlate = "2 hours"'


def rows(seed, n, **columns):
    rng = np.random.default_rng(seed)
    times = [(BEGIN + timedelta(seconds=int(s))).isoformat() for s in rng.integers(0, 3600, n)]
    return [
        {"sale": int(k), "t": t} | {name: make(rng) for name, make in columns.items()}
        for k, t in zip(rng.integers(0, 40, n), times, strict=True)
    ]


def sales(seed, n=150):
    return rows(seed, n, shop=lambda rng: "abc"[rng.integers(3)])


def payments(seed, n=150):
    return rows(seed, n, amount=lambda rng: float(rng.integers(100)))


def write(place, step):
    (place.root / "payments").mkdir(exist_ok=True)
    place.write(PAID.replace("STEP", step))


def arrive(place, folder, name, *lines):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (place.root / folder / name).write_text("\n".join(texts) + "\n")


def joined(left, right, on):
    """DuckDB's join, as a multiset of rows."""
    columns = "l.sale, l.shop, l.t::timestamp as t, r.amount, r.t::timestamp as t_right"
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as db:
        for name, records in (("l", left), ("r", right)):
            stripped = [row | {"t": row["t"].removesuffix("+00:00")} for row in records]
            db.register(name, pa.Table.from_pylist(stripped))
        on = on.replace("apart", "abs(epoch_us(l.t::timestamp) - epoch_us(r.t::timestamp)) / 1e6")
        return Counter(db.sql(f"select {columns} from l join r on {on}").fetchall())


def loaded(place, *columns):
    """The rows of the table, times as DuckDB has them."""
    return Counter(
        tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for name in columns for v in [row[name]])
        for row in place.loaded()
    )


def test_oracle_a_window_join_goes_on_in_a_second_run_and_both_sources_have_dead_letters(place, spark):
    write(place, f'window_join = "payments"\non = "sale"\n{BY_TIME}\nmethod = "all"\nmemory = "32MiB"\nshards = 2')
    checked = place.check()
    pipeline = place.read()
    describe_with_spark(pipeline, spark, checked)
    assert not (place.root / "sales.state").exists()
    left, right = sales(1), payments(2)
    for part in (slice(0, 70), slice(70, 150)):
        arrive(place, "incoming", f"{part.start}.json", *left[part], '{"sale": 1, "shop', {"shop": "a"})
        arrive(place, "payments", f"{part.start}.json", *right[part], '{"sale": 1, "amount": "two"}', f"{{{part.start}")
        status = place.run(spark).status
    assert loaded(place, "sale", "shop", "t", "amount", "t_right") == joined(
        left, right, "l.sale = r.sale and apart < 600"
    )
    dead = place.dead()
    assert len(dead) == 8 == status.dead
    assert Counter(d["source"].split("/")[-2] for d in dead) == {"incoming": 4, "payments": 4}
    assert Counter(d["reason"] for d in dead)["column 'amount': found 'two', expected double"] == 2
    assert (place.root / "sales.state/run-log").is_dir()
    assert status.joins["window join by sale"].tuples_in == 80 + 80


def test_an_approximate_join_that_keeps_all_and_samples_of_its_results_one_after_the_other(place, spark):
    steps = [
        'approximate_join = "payments"\non = "sale"\nmethod = "exact"\nshards = 2',
        f'sample = 50\n{BY_TIME}\nbatch_column = "number"',
        'filter = "amount >= 0"',
        f"sample = 20\n{BY_TIME.replace('10 minutes', '2h')}",
    ]
    write(place, "\n[[step]]\n".join(steps))
    left, right = sales(3), payments(4)
    for number, part in enumerate((slice(0, 100), slice(100, 150))):
        arrive(place, "incoming", f"{number}.json", *left[part])
        arrive(place, "payments", f"{number}.json", *right[part])
        status = place.run(spark).status
    found = loaded(place, "sale", "shop", "t", "amount", "t_right", "number", "batch")
    assert Counter(row[-1] for row in found.elements()) == {0: 20, 1: 20}
    every = joined(left, right, "l.sale = r.sale")
    assert {row[:-2] for row in found} <= every.keys()
    latest = max(row[2] for row in every)
    assert {row[2] > latest - timedelta(minutes=10) for row in found if row[-1] == 1 == row[-2]} == {True}
    assert status.joins.keys() == {"approximate join by sale", "sample", "sample 2"}
    assert place.run(spark).status.rows == 0  # nothing has come, and nothing is loaded again
    assert loaded(place, "batch") == {(0,): 20, (1,): 20}


def test_oracle_estimates_of_windows_of_which_all_is_kept(place, spark):
    write(
        place,
        f'estimate = ["count", "sum(amount)"]\nwindow_join = "payments"\non = "sale"\n{BY_TIME.replace("10 minutes", "2h")}\n'
        'size = 1000\ngroup_by = "shop"\nshards = 2',
    )
    left, right = sales(5), payments(6)
    arrive(place, "incoming", "0.json", *left)
    arrive(place, "payments", "0.json", *right)
    place.run(spark)
    truth = Counter()
    for (_, shop, _, amount, _), n in joined(left, right, "l.sale = r.sale").items():
        truth[shop, "count"] += n
        truth[shop, "sum(amount)"] += n * amount
    found = {(row["shop"], row["quantity"]): row for row in place.loaded()}
    assert {key: row["estimate"] for key, row in found.items()} == pytest.approx(dict(truth))
    assert all(row["low"] == pytest.approx(row["high"]) and row["kept"] == row["rows"] == 300 for row in found.values())
    assert {row["batch"] for row in found.values()} == {0}


def test_what_an_enrich_step_sheds_is_estimated(place, spark):
    place.products().close()
    place.write(SALES, ('memory = "4MiB"', 'memory = "4MiB"\nshed = "sample"\nestimate = "price"'))
    pipeline = place.read()
    (step,) = pipeline.steps
    df = add_step(pipeline, step, ("step", 0), stand_in(spark, SCHEMA))
    assert Plan.of(df).steps[0].shed.estimate == ("price",)
