"""Enrich a stream of sales without Spark: Arrow batches in, Arrow batches out, in 4 MiB of memory.

Run it with: python examples/without_spark.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.semistream import AdaptiveJoin

PRODUCTS = 300_000


def products() -> pa.Table:
    ids = np.arange(PRODUCTS)
    names = pa.array(np.char.add("product ", ids.astype("U6")))
    return pa.table({"product_id": ids, "name": names, "price": ids % 997 + 0.99, "category": ids % 31})


def sales(batches: int = 40) -> Iterator[pa.RecordBatch]:
    """Popular products sell often; one sale in a hundred names a product that nobody knows."""
    rng = np.random.default_rng(1)
    popular = rng.permutation(PRODUCTS)
    for _ in range(batches):
        rank = (PRODUCTS ** rng.random(10_000)).astype(np.int64)
        product = np.where(rng.random(10_000) < 0.01, PRODUCTS + rank, popular[rank - 1])
        yield pa.record_batch({"product_id": product, "quantity": rng.integers(1, 5, 10_000)})


def main() -> None:
    with tempfile.TemporaryDirectory() as where:
        rel = hr.Relation.create(f"{where}/products.rel", products(), key="product_id")
        op = AdaptiveJoin(rel, on="product_id", memory="4MiB", how="left", columns=["name", "price"])
        revenue, unknown = 0.0, 0
        for batch in op.run(sales()):
            price = batch["price"].to_numpy(zero_copy_only=False)  # NaN where nobody knows the product
            revenue += float(np.nansum(price * batch["quantity"].to_numpy()))
            unknown += batch["name"].null_count
        facts = rel.describe()
        print(f"{facts['rows']:,} products in {facts['pages']:,} pages ({facts['bytes'] / 2**20:.0f} MiB)")
        print(f"{op.stats.tuples_in:,} sales, {unknown:,} of unknown products, revenue {revenue:,.2f}")
        print(f"served from memory: {op.stats.hit_ratio:.0%}; pages read: {op.stats.pages_read:,}")
        print(f"memory: {op.stats.memory_peak / 2**20:.1f} of {op.stats.memory_limit / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
