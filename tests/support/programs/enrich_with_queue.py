"""The program that test_queue_killed kills: MESHJOIN keeps its queue over a stream of files, which is loaded and finished.

Its argument is a directory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(root: Path) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.spark import sinks
    from headrace.spark.state import stateful

    job = Job(root)
    if os.environ.get("HEADRACE_HOLD") == "end":
        os.environ["HEADRACE_HOLD"] = "0"
        stand_still(stateful.Finishing, "close", job)
    else:
        stand_still(sinks, "note_finished", job)
    spark = session(job)
    with hr.Relation.open(job.relation) as relation:
        reader = spark.readStream.schema("k bigint, n bigint").option("maxFilesPerTrigger", 1)
        out = hr.enrich(
            reader.parquet(str(job.input)),
            relation,
            on="k",
            how="left",
            algorithm="meshjoin",
            memory="512KiB",
            workers=2,
            defer=hr.Defer(deadline="10m", state=root / "state", shards=2),
        )
        query = hr.load(out, job.table, checkpoint=job.checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
        hr.finish(query)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
