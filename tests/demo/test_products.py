"""Products: each a function of its number, with a key that no other has."""

import numpy as np
import pyarrow as pa

from headrace.demo.products import KEY, SCHEMA, codes, prices, products, reader

COUNT = 250_000


def test_keys_are_unique_also_beyond_the_products():
    numbers = np.arange(2 * COUNT)
    batch = products(numbers)
    keys = set(zip(batch.column("source").to_pylist(), batch.column("code").to_pylist(), strict=True))
    assert len(keys) == 2 * COUNT
    assert {source for source, _ in keys} == {"store", "web"}


def test_a_product_is_a_function_of_its_number():
    whole = reader(COUNT).read_all()
    assert whole.schema == SCHEMA
    assert whole.num_rows == COUNT
    some = np.random.default_rng(1).integers(0, COUNT, 1000)
    assert pa.Table.from_batches([products(some)]).equals(whole.take(some).combine_chunks())
    assert np.array_equal(prices(some), np.asarray(whole["unit_price"].take(some)))


def test_no_nulls_about_a_hundred_bytes_and_sensible_values():
    table = reader(10_000).read_all()
    assert all(column.null_count == 0 for column in table.columns)
    assert 80 <= table.nbytes / table.num_rows <= 120
    cents = np.asarray(table["unit_price"])
    assert cents.min() >= 50
    assert cents.max() < 100_000
    assert set(KEY) <= set(table.column_names)


def test_store_codes_are_valid_eans():
    store = [code for code in codes(np.arange(100)).to_pylist() if len(code) == 13]
    assert len(store) == 60
    for code in store:
        digits = [int(c) for c in code]
        assert (sum(digits[0::2]) + 3 * sum(digits[1::2])) % 10 == 0


def test_the_largest_numbers_do_not_overflow():
    from headrace.demo.scenario import MOST_PRODUCTS

    last = codes(np.array([2 * MOST_PRODUCTS - 1, 2 * MOST_PRODUCTS - 4])).to_pylist()
    number = 2 * MOST_PRODUCTS - 1
    assert last[0] == "2" + f"{number * 61_803_398_749 % 10**11:011d}" + last[0][-1]
    assert int(last[1][2:], 36) == (2 * MOST_PRODUCTS - 4) * 174_353_179_877 % 36**8
