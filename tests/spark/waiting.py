"""The program that test_deadline_killed kills: a stream of files, enriched with a deadline, loaded, finished. See `loading`."""

from __future__ import annotations

import sys
from pathlib import Path


def main(root: Path) -> None:
    from loading import Job, session  # beside this program

    import headrace as hr

    job = Job(root)
    spark = session(job)
    with hr.Relation.open(job.relation) as relation:
        reader = spark.readStream.schema("k bigint, n bigint").option("maxFilesPerTrigger", 1)
        out = hr.enrich(
            reader.parquet(str(job.input)), relation, on="k", unmatched="dead_letter", deadline="20s", state=root / "state",
            shards=2,
        )  # fmt: skip
        query = hr.load(out, job.table, checkpoint=job.checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
        hr.finish(query)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
