"""The proof: holds for the right table, in any order, and for no other."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headrace.demo.products import products
from headrace.demo.proof import SaleNumbers, prove
from headrace.demo.sales import Sales
from headrace.demo.scenario import Scenario
from headrace.demo.strings import fingerprints
from headrace.demo.totals import COLUMNS, Totals, expected, expected_rows

SMALL = Scenario(rate=3000, seconds=1, products=50, seed=3)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.Table.from_batches([expected_rows(Sales(SMALL), 0, SMALL.sales)])


def test_oracle_expected_is_the_join_by_hand(rows):
    sales = Sales(SMALL)
    known = {(p["source"], p["code"]): p for p in products(np.arange(SMALL.products)).to_pylist()}
    by_hand = []
    for sale in sales.batch(0, SMALL.sales).to_pylist():
        product = known.get((sale["source"], sale["code"]))
        by_hand.append(
            {c: sale[c] for c in ("sale_id", "source", "code", "quantity")}
            | {c: product and product[c] for c in ("name", "category", "brand", "unit_price")}
            | {"line_total": product and sale["quantity"] * product["unit_price"]}
        )
    assert rows.to_pylist() == by_hand
    totals = expected(SMALL)
    assert totals.sales == len(by_hand) == 3000
    assert totals.quantity == sum(row["quantity"] for row in by_hand)
    assert totals.sale_ids == sum(row["sale_id"] for row in by_hand)
    assert totals.line_totals == sum(row["line_total"] or 0 for row in by_hand)
    assert totals.unmatched == sum(row["name"] is None for row in by_hand) > 0


def test_totals_do_not_depend_on_order_or_batches(rows):
    order = np.random.default_rng(1).permutation(rows.num_rows)
    total = Totals()
    for batch in rows.take(order).combine_chunks().to_batches(max_chunksize=700):
        total += Totals.of(batch)
    assert total == expected(SMALL)


@pytest.mark.parametrize("column", COLUMNS)
def test_the_checksum_sees_a_change_in_any_column(rows, column):
    values = rows[column].to_pylist()
    at = next(i for i in range(len(values) - 1) if values[i] != values[i + 1] and None not in values[i : i + 2])
    values[at], values[at + 1] = values[at + 1], values[at]  # sums stay the same
    index = rows.schema.get_field_index(column)
    swapped = rows.set_column(index, column, pa.array(values, rows.schema.field(column).type))
    found = Totals.of(swapped.combine_chunks().to_batches()[0])
    assert (found.quantity, found.line_totals, found.sale_ids) == tuple(
        getattr(expected(SMALL), name) for name in ("quantity", "line_totals", "sale_ids")
    )
    assert found.checksum != expected(SMALL).checksum


def write(path, *tables):
    from deltalake import write_deltalake

    for table in tables:
        write_deltalake(str(path), table, mode="append")
    return path


def test_the_right_table_is_proved_and_progress_is_told(rows, tmp_path):
    order = np.random.default_rng(1).permutation(rows.num_rows)
    told = []
    table = write(tmp_path / "t", rows.take(order).slice(0, 1000), rows.take(order).slice(1000))
    checks = prove(table, SMALL, lambda done, of: told.append((done, of)))
    assert all(check.holds for check in checks)
    assert told[-1] == (6000, 6000)
    assert told == sorted(told)


def wrong(rows: pa.Table, name: str) -> pa.Table:
    if name == "lost":
        return rows.slice(1)
    if name == "twice":
        return pa.concat_tables([rows, rows.slice(5, 1)])
    if name == "swapped":  # one lost, another twice: the count is right
        return pa.concat_tables([rows.slice(1), rows.slice(5, 1)])
    foreign = rows.slice(0, 1).set_column(0, "sale_id", pa.array([SMALL.sales]))
    return pa.concat_tables([rows.slice(1), foreign])


@pytest.mark.parametrize(
    ("how", "broken"),
    [
        ("lost", {"sales", "distinct", "checksum"}),
        ("twice", {"sales", "repeated", "checksum"}),
        ("swapped", {"distinct", "repeated", "checksum"}),
        ("foreign", {"distinct", "foreign", "checksum"}),
    ],
)
def test_a_wrong_table_is_found_out(rows, tmp_path, how, broken):
    failed = {c.name for c in prove(write(tmp_path / "t", wrong(rows, how)), SMALL) if not c.holds}
    assert broken <= failed


def test_no_table_is_no_proof(tmp_path):
    checks = {check.name: check for check in prove(tmp_path / "none", SMALL)}
    assert (checks["sales"].found, checks["sales"].holds) == (0, False)


@pytest.mark.parametrize("seed", range(5))
def test_oracle_sale_numbers(seed):
    numbers = np.random.default_rng(seed).integers(-3, 70, 200)
    seen = SaleNumbers(61)
    for part in np.array_split(numbers, 7):
        seen.add(part)
    counted = Counter(n for n in numbers.tolist() if 0 <= n < 61)
    assert seen.distinct == len(counted)
    assert seen.repeated == sum(counted.values()) - len(counted)
    assert seen.foreign == len(numbers) - sum(counted.values())


def test_fingerprints_do_not_depend_on_the_batch():
    texts = ["", "a", "ab", "abcdefgh", "abcdefghi", "x" * 40, None, "é"]
    column = pa.array(texts)
    whole = fingerprints(column)
    assert len(set(whole.tolist())) == len(texts)
    assert [int(fingerprints(column.slice(i, 1))[0]) for i in range(len(texts))] == whole.tolist()
    assert np.array_equal(fingerprints(column.cast(pa.large_string())), whole)
    numbers = pa.array([0, -1, None, 5], pa.int32())
    assert len(set(fingerprints(numbers).tolist())) == 4
    assert np.array_equal(fingerprints(numbers), fingerprints(numbers.cast(pa.int64())))
