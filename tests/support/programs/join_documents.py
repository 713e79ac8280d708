"""The program that test_xml_killed kills: it joins two streams of XML documents in little memory and loads the results.

Its argument is a directory, in which the file `call` says how: "xquery" or "twig_join".
"""

from __future__ import annotations

import sys
from pathlib import Path

QUERY = 'for $a in doc("a.xml")//x, $b in doc("b.xml")//y where $a/k = $b/k return <r>{$a/n, $b/n}</r>'
TWIGS = {"a": "//x[k][n]", "b": "//y[k][n]"}


def main(root: Path) -> None:
    from killable_job import Job, session, stand_still  # beside this program

    import headrace as hr
    from headrace.spark import sinks

    job = Job(root)
    stand_still(sinks, "note_finished", job)
    spark = session(job)
    common = {
        "streaming": True,
        "dead_letters": root / "dead",
        "memory": "3MiB",
        "shards": 2,
        "partitions": 4,
        "workers": 2,
        "state": root / "state",
    }
    one = {"options": {"maxFilesPerTrigger": 1}}
    if (root / "call").read_text() == "xquery":
        out = hr.xquery(spark, QUERY, {f"{name}.xml": (job.input / name, one) for name in TWIGS}, **common)
    else:
        sides = {name: (job.input / name, twig(path), one) for name, path in TWIGS.items()}
        out = hr.twig_join(sides, dict.fromkeys(TWIGS, "k"), spark=spark, **common)
    query = hr.load(out, job.table, checkpoint=job.checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    assert hr.finish(query).rows == 0, "a run that ends by itself owes nothing"
    spark.stop()


def twig(path: str):
    from headrace.xml import Twig

    return Twig(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
