"""The program that test_shed_killed kills: it enriches and loads too fast a stream, sheds, and replays.

Its argument is a directory.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(root: Path) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.spark import sinks

    stand_still(sinks, "note_finished", job := Job(root))
    spark = session(job)
    with hr.Relation.open(root / "relation") as relation:
        reader = spark.readStream.schema("k bigint, n bigint").option("maxFilesPerTrigger", 3)  # a task each
        shed = hr.Shedding("topw", rate=600, target_delay="2s", state=root / "state")
        out = hr.enrich(reader.parquet(str(root / "in")), relation, on="k", shed=shed)
        trigger = {"availableNow": True}
        hr.load(out, root / "table", checkpoint=root / "checkpoint", trigger=trigger).awaitTermination()
    hr.replay(root / "state", root / "table", session=spark)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
