"""The program that test_shed_killed kills: it enriches and loads too fast a stream, sheds, and replays.

Its argument is a directory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(root: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from killable_job import Job, stand_still  # beside this program
    from pyspark.sql import SparkSession

    import headrace as hr
    from headrace.spark import sinks

    stand_still(sinks, "note_finished", Job(root))
    session = SparkSession.builder.master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(root / "scratch"),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }.items():
        session = session.config(key, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
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
