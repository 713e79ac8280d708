"""A relation, a join with it and a join of two streams, compared with plain Python: ``installed_joins.py DIRECTORY``.

Runs where Headrace is installed from a wheel, so it has no test library and none of the project's files. Prints what it saw.
"""

import json
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.progressive import ProgressiveJoin
from headrace.semistream import AdaptiveJoin

LIBRARIES = ("numba", "numpy", "psutil", "pyarrow", "rich", "typer")


def rows_of(batches):
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def same(found, expected):
    assert found == expected, (
        f"too many {list((found - expected).items())[:5]}, missing {list((expected - found).items())[:5]}"
    )


def keep_a_relation(path):
    """Create, change, open and look up; return it, and its rows as a dictionary."""
    rows = {key: f"name {key}" for key in range(0, 20_000, 2)}
    table = pa.table({"k": list(rows), "name": list(rows.values())})
    hr.Relation.create(path, table, key="k", shards=2)
    hr.Relation.open(path).apply(upserts=pa.table({"k": [4, 5], "name": ["four", "five"]}), deletes=[6])
    rows |= {4: "four", 5: "five"}
    del rows[6]
    relation = hr.Relation.open(path)
    assert relation.num_rows == len(rows), relation.num_rows
    asked = [4, 5, 6, 7, 8, 19_998, 20_000]
    same(rows_of(relation.lookup(asked).to_batches()), Counter((k, rows[k]) for k in asked if k in rows))
    relation.verify()
    return relation, rows


def enrich_a_stream(relation, rows):
    rng = np.random.default_rng(1)
    keys = [rng.integers(0, 24_000, 2_000) for _ in range(4)]
    stream = [pa.record_batch({"k": part, "n": np.arange(len(part))}) for part in keys]
    expected = Counter((int(k), n, rows.get(int(k))) for part in keys for n, k in enumerate(part))
    same(rows_of(AdaptiveJoin(relation, on="k", memory="2MiB", how="left").run(stream)), expected)
    return sum(expected.values())


def join_two_streams():
    rng = np.random.default_rng(2)
    left, right = (rng.integers(0, 300, 3_000) for _ in range(2))
    op = ProgressiveJoin(hr.equal("k"), memory="256KiB")
    found = []
    for at in range(0, 3_000, 500):
        for side, keys, name in (("left", left, "x"), ("right", right, "y")):
            found += op.insert(side, pa.record_batch({"k": keys[at : at + 500], name: np.arange(at, at + 500)}))
    found += op.finish()
    expected = Counter((int(k), int(x), int(y)) for x, k in enumerate(left) for y in np.flatnonzero(right == k))
    same(rows_of(found), expected)
    return sum(expected.values())


def main(directory):
    relation, rows = keep_a_relation(Path(directory) / "names.rel")
    seen = {
        "file": hr.__file__,
        "versions": {name: version(name) for name in LIBRARIES},
        "enriched": enrich_a_stream(relation, rows),
        "pairs": join_two_streams(),
    }
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
