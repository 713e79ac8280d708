"""The program that test_load_killed kills: it enriches a stream of files and loads it. Its argument is a directory, see `Job`."""

from __future__ import annotations

import sys
from pathlib import Path


def main(root: Path) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.spark.delta.load import Sink

    job = Job(root)
    stand_still(Sink, "_commit", job)
    spark = session(job)
    with hr.Relation.open(job.relation) as relation:
        reader = spark.readStream.schema("k bigint, n bigint").option("maxFilesPerTrigger", 2)  # a task each
        out = hr.enrich(reader.parquet(str(job.input)), relation, on="k")
        trigger = {"availableNow": True}
        hr.load(out, job.table, checkpoint=job.checkpoint, partition_by="part", trigger=trigger).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
