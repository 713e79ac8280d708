"""The program that test_window_join_killed kills: it joins samples of the windows of two streams of files, and loads the pairs.

Its argument is a directory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def joined(spark: Any, source: Path, state: Path) -> Any:
    """The join, as a test that kills nothing makes it too."""
    import headrace as hr

    def stream(side: str) -> Any:
        reader = spark.readStream.schema("k bigint, n bigint, t timestamp").option("maxFilesPerTrigger", 2)
        return reader.parquet(str(source / side)).withWatermark("t", "10 minutes")

    return hr.window_join(
        stream("left"),
        stream("right"),
        hr.equal("k"),
        window=hr.time("20m", on="t"),
        size=300,
        shards=2,
        state=state,
        seed=7,
    )


def main(root: Path) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.spark import sinks

    job = Job(root)
    stand_still(sinks, "note_finished", job)
    spark = session(job)
    out = joined(spark, job.input, root / "state")
    query = hr.load(out, job.table, checkpoint=job.checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
