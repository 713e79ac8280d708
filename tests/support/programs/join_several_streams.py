"""The program that test_multiway_killed kills: it joins three streams of files in little memory and loads the results.

Its argument is a directory.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(root: Path) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.spark import sinks

    job = Job(root)
    stand_still(sinks, "note_finished", job)
    spark = session(job)

    def stream(name: str):
        reader = spark.readStream.schema("k bigint, n bigint, wide string").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(job.input / name))

    out = hr.multiway_join(
        [stream(name) for name in ("a", "b", "c")],
        on="k",
        memory="1536KiB",
        state=root / "state",
        shards=2,
        partitions=8,
    )
    query = hr.load(out, job.table, checkpoint=job.checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    assert hr.finish(query).rows == 0, "a run that ends by itself owes nothing"
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
