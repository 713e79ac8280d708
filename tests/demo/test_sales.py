"""Sales: the same by any split, spread as Zipf says, a few of them of products that nobody knows."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.demo.sales import SCHEMA, Sales
from headrace.demo.scenario import MOST_SALES, Scenario
from headrace.errors import BadInput

SMALL = Scenario(rate=1000, seconds=2, products=50, seed=9)


@given(st.lists(st.integers(0, 2000), max_size=6))
def test_property_any_split_gives_the_same_sales(cuts):
    sales = Sales(SMALL)
    edges = [0, *sorted(cuts), 2000]
    parts = [sales.batch(a, b) for a, b in pairwise(edges)]
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([sales.batch(0, 2000)]))


def test_schema_and_times():
    batch = Sales(SMALL).batch(0, 2000)
    assert batch.schema == SCHEMA
    assert all(column.null_count == 0 for column in batch.columns)
    times = batch.column("sold_at").cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    assert times[-1] - times[0] <= 2_000_000
    assert batch.column("sold_at")[0].as_py().isoformat().startswith("2026-11-27T09:00:0")
    assert min(batch.column("quantity").to_pylist()) == 1


def test_oracle_zipf():
    scenario = Scenario(rate=400_000, seconds=1, products=1000, skew=1.0)
    numbers = Sales(scenario).products(np.arange(scenario.sales))
    known = numbers[numbers < 1000]
    counts = np.sort(np.bincount(known, minlength=1000))[::-1]
    weights = 1 / np.arange(1, 1001)
    expected = weights / weights.sum() * len(known)
    assert np.abs(counts[:20] / expected[:20] - 1).max() < 0.05
    assert np.abs(np.cumsum(counts) / np.cumsum(expected) - 1).max() < 0.02
    # popular products are scattered: the top ranks are not neighbours
    top = np.argsort(-np.bincount(known))[:20]
    assert np.abs(np.diff(np.sort(top))).min() > 1


def test_skew_zero_is_uniform_and_one_product_is_enough():
    scenario = Scenario(rate=100_000, seconds=1, products=10, skew=0)
    numbers = Sales(scenario).products(np.arange(scenario.sales))
    counts = np.bincount(numbers[numbers < 10])
    assert np.abs(counts / counts.mean() - 1).max() < 0.05
    assert set(Sales(Scenario(rate=100, seconds=1, products=1)).products(np.arange(100))) <= {0, 1}


def test_one_in_a_hundred_is_of_no_product():
    scenario = Scenario(rate=100_000, seconds=2, products=1000)
    numbers = Sales(scenario).products(np.arange(scenario.sales))
    assert (numbers >= 1000).mean() == pytest.approx(0.01, rel=0.1)
    assert numbers.max() < 2000


def test_another_seed_other_sales():
    one, other = (Sales(Scenario(rate=100, seconds=1, seed=s)).batch(0, 100) for s in (1, 2))
    assert not one.equals(other)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"rate": 0}, "rate=0 is out of range; give 1 to 10000000 sales a second"),
        ({"seconds": float("nan")}, "seconds=nan is out of range"),
        ({"products": 30_000_000}, "products=30000000 is out of range; give 1 to 20000000 products"),
        ({"skew": -1}, "skew=-1 is out of range; give 0 to 4"),
        ({"seed": -1}, "seed=-1 is out of range"),
        ({"rate": 10_000_000, "seconds": 3600}, f"{MOST_SALES} or fewer"),
    ],
)
def test_refusals_name_value_and_remedy(bad, message):
    with pytest.raises(BadInput, match=message):
        Scenario(**bad)
