"""Load the sales of two shops into one warehouse, where every product has a key of the warehouse's own.

The shops number products as they like: number 1 is a bolt in one and a nut in the other, and both sell bolts.
Run it with: python examples/warehouse_with_surrogate_keys.py
"""

from __future__ import annotations

import tempfile

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import headrace as hr

KNOWN = {  # what the warehouse knows before the first sale: the north's bolt is number 1 of the warehouse
    "shop": ["north"],
    "product": [1],
    "skey": [1],
    "inferred": [False],
    "name": ["bolt"],
}
SAME = {"shop": ["south"], "product": [7], "same_shop": ["north"], "same_product": [1]}  # the south's 7 is that bolt
SALES = [("north", 1, 3), ("north", 2, 1), ("south", 1, 5), ("south", 7, 2), ("north", 2, 4)]


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    with tempfile.TemporaryDirectory() as where:
        lookup = hr.Relation.create(f"{where}/products.lookup", pa.table(KNOWN), key=["shop", "product"])
        same = hr.Relation.create(f"{where}/products.same", pa.table(SAME), key=["shop", "product"])
        columns = "shop string, product long, quantity int"
        spark.createDataFrame(SALES, columns).write.parquet(f"{where}/incoming")
        sales = spark.readStream.schema(columns).parquet(f"{where}/incoming")

        # A product that nobody knows gets the next number, and is in the lookup from then on: an inferred member.
        keyed = hr.assign_surrogate_keys(
            sales, lookup, source_column="shop", key="product", same_as=same, memory="16MiB"
        )
        query = hr.load(keyed, f"{where}/sales", checkpoint=f"{where}/checkpoint", trigger={"availableNow": True})
        query.awaitTermination()

        facts = DeltaTable(f"{where}/sales").to_pyarrow_table().group_by("skey").aggregate([("quantity", "sum")])
        for row in facts.sort_by("skey").to_pylist():
            print(f"product {row['skey']} of the warehouse: {row['quantity_sum']} sold")
        print(f"{lookup.refresh().num_rows} names of products in the lookup")


if __name__ == "__main__":
    main()
