"""The program that test_spark_sql_killed kills: it joins recorded feeds and loads the results.

Its argument is a directory.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(root: Path, text: str) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.spark import sinks

    job = Job(root)
    stand_still(sinks, "note_finished", job)
    spark = session(job)
    out = hr.sql(spark, text, recorded=job.input, state=root / "state", max_pulls=2, shards=2, partitions=8)
    query = hr.load(out, job.table, checkpoint=job.checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    where = Path(sys.argv[1])
    main(where, (where / "query.sql").read_text())
