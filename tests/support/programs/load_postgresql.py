"""The program that test_postgresql_killed kills: it loads a stream of files into PostgreSQL. Its argument is a directory."""

from __future__ import annotations

import sys
from pathlib import Path


def main(root: Path) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.sources.upsert import UpsertTarget

    job = Job(root)
    stand_still(UpsertTarget, "merge", job)
    spark = session(job)
    reader = spark.readStream.schema("k bigint, n bigint").option("maxFilesPerTrigger", 2)  # a task each
    query = hr.load_postgresql(
        reader.parquet(str(job.input)),
        "loaded",
        url="env:LOADED_URL",
        checkpoint=job.checkpoint,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
