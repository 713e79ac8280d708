"""The program that test_progressive_killed kills: it joins two streams of files in little memory and loads the results.

Its argument is a directory, in which the file `how` names the joins: each is a query of its own, and all run at the same time.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WITHIN = 120  # seconds between two partners; an inner join has no such bound, and its state only grows


def main(root: Path, hows: list[str]) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.spark import sinks
    from headrace.spark.state import stateful

    job = Job(root)
    if os.environ.get("HEADRACE_HOLD") == "end":
        os.environ["HEADRACE_HOLD"] = "0"
        # An inner join and a semi join have nothing left to give at the end.
        leaving = [how for how in hows if how not in ("inner", "semi")]
        stand_still(stateful.Finishing, "close", job, len(leaving), lambda finishing: finishing.query)
    else:
        stand_still(sinks, "note_finished", job, len(hows), lambda steps, query, batch: query)
    spark = session(job)

    def stream(side: str):
        reader = spark.readStream.schema("k bigint, n bigint, t timestamp, wide string")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(job.input / side))

    def run(how: str) -> None:
        bound = {} if how == "inner" else {"within_time": WITHIN, "time": "t", "delay": 60}
        out = hr.progressive_join(
            stream("left"), stream("right"), hr.equal("k"), how=how, memory="1MiB", state=root / "state", shards=2, partitions=8,
            **bound,
        )  # fmt: skip
        query = hr.load(out, job.table / how, checkpoint=job.checkpoint / how, trigger={"availableNow": True})
        query.awaitTermination()
        owed = hr.finish(query).rows
        assert owed == 0 or how != "inner", "a run that ends by itself owes nothing"

    with ThreadPoolExecutor(len(hows)) as pool:
        list(pool.map(run, hows))
    spark.stop()


if __name__ == "__main__":
    where = Path(sys.argv[1])
    main(where, (where / "how").read_text().split())
