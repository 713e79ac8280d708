"""A little of what each extra but ``spark`` brings: prints what it saw."""

import json
import sys

import pyarrow as pa

import headrace as hr
from headrace.console.app import Console
from headrace.console.server import ConsoleServer
from headrace.feeds.scanner import Scanner
from headrace.progressive import ProgressiveJoin

NOBODY = "postgresql://nobody@127.0.0.1:1/shop"  # no server listens on port 1


def similar_names():
    op = ProgressiveJoin(hr.all_of(hr.equal("k"), hr.edit_distance("name", at_most=1)), memory="1MiB")
    left, right = {"k": [1, 2], "name": ["ada", "grace"]}, {"k": [1, 2], "name": ["adam", "barbara"]}
    batches = [*op.insert("left", pa.record_batch(left)), *op.insert("right", pa.record_batch(right)), *op.finish()]
    return [list(row.values()) for batch in batches for row in batch.to_pylist()]


def plan_of_a_query():
    return hr.sql("SELECT a.title FROM rss('https://example.org/feed') a WHERE a.title LIKE '%flood%'").explain()


def unreachable():
    try:
        hr.postgresql("sales", url=NOBODY, by="t").latest()
    except hr.OutsideFailure as error:
        return str(error)
    return None


def main():
    seen = {
        "text": similar_names(),
        "feeds": [plan_of_a_query(), Scanner.__name__],
        "console": [Console.__name__, ConsoleServer.__name__],
        "postgresql": unreachable(),
    }
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
