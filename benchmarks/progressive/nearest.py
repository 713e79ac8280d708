"""Spark's `nearestByJoin` beside ours: ``python -m benchmarks.progressive.nearest ROWS DIMS``. Prints JSON.

It ranks all rows of the other side and gives the k best of each row; there is no join by distance, and none of streams. So both
read the same files, ours as two streams to their end; of Spark's k pairs a row those within eps count, and what has more
neighbours than k within eps loses the rest.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.progressive.embeddings import EPS, RECALL, Embeddings, by_products
from benchmarks.progressive.spark import stream

K = 10


def measure(rows: int, dims: int) -> dict[str, Any]:
    """The seconds and the pairs of both."""
    from pyspark.sql import functions as sf

    import headrace as hr
    from benchmarks.spark.session import session as spark_session

    data = Embeddings.made("clusters", dims, rows)
    out: dict[str, Any] = {"rows": rows, "dims": dims, "wanted": int(by_products(data.left, data.right).size)}
    with tempfile.TemporaryDirectory() as place, spark_session(Path(place)) as session:
        paths = {side: Path(place) / side for side in ("left", "right")}
        for side, path in paths.items():
            path.mkdir()
            table = pa.Table.from_batches([batch for name, batch in data.batches(rows) if name == side])
            lists = table["v"].cast(pa.list_(pa.float32()))
            pq.write_table(table.set_column(1, "v", lists), path / "0.parquet")

        def nearest() -> int:
            left, right = (session.read.parquet(str(path)) for path in paths.values())
            right = right.withColumnRenamed("v", "w")
            rank = sf.vector_cosine_similarity(left.v, right.w)
            pairs = left.nearestByJoin(right, rank, K, "exact", "similarity")
            return int(pairs.where(sf.vector_cosine_similarity("v", "w") >= 1 - EPS).count())

        def ours() -> int:
            near = hr.within("v", eps=EPS, metric="cosine", dims=dims, recall=RECALL)
            found: list[int] = []
            joined = hr.progressive_join(
                *(stream(session, path) for path in paths.values()), near, memory="1GiB", state=Path(place) / "state"
            )
            query = joined.writeStream.foreachBatch(lambda df, _: found.append(df.count()))
            query = query.option("checkpointLocation", str(Path(place) / "check")).trigger(availableNow=True)
            query.start().awaitTermination()
            return sum(found)

        for name, run in (("nearestByJoin", nearest), ("headrace", ours)):
            begun = time.perf_counter()
            out[name] = {"pairs": run(), "seconds": time.perf_counter() - begun}
    return out


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))) + "\n")
