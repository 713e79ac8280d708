"""Run pipeline.toml, the file beside this one, with a day of made sales, two of which cannot be read.

Run it with: python examples/pipeline.py
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import headrace as hr

PIPELINE = Path(__file__).with_name("pipeline.toml")


def make_data(where: Path) -> None:
    ids = range(1_000)
    products = pa.table({"product_id": ids, "name": [f"product {n}" for n in ids], "price": [n % 97 for n in ids]})
    hr.Relation.create(where / "products.rel", products, key="product_id")
    sales = [json.dumps({"sale": n, "product_id": n * 7 % 1_000, "quantity": 1 + n % 3}) for n in range(500)]
    broken = ['{"sale": 500, "product', '{"sale": 501, "product_id": 1, "quantity": "two"}']
    (where / "incoming").mkdir()
    (where / "incoming" / "monday.json").write_text("\n".join([*sales, *broken]) + "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as where:
        os.environ["DATA"] = where
        make_data(Path(where))
        pipeline = hr.read_pipeline(PIPELINE)
        pipeline.check()  # a mistake in the file is an error that names its line
        pipeline.start(SparkSession.builder.getOrCreate(), once=True).awaitTermination()

        totals = DeltaTable(f"{where}/sales").to_pyarrow_table()["total"]
        print(f"{len(totals)} sales loaded, {sum(totals.to_pylist()):,} in all")
        for letter in pq.read_table(f"{where}/state/dead-letters").sort_by("record").to_pylist():
            print(f"put aside: {letter['record']}: {letter['reason']}")


if __name__ == "__main__":
    main()
