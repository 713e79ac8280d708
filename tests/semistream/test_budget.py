"""The budget against the process's own memory, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
import numpy as np, pyarrow as pa
import headrace as hr
from headrace.semistream import AdaptiveJoin

def resident(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

rng = np.random.default_rng(5)
def batch(rows, n):
    keys = rng.integers(0, n, rows)
    if workload == "skewed":
        keys = (n ** rng.random(rows)).astype(np.int64) * 7919 % n
    keys = keys * 2 + (workload == "absent")
    if workload == "text":
        keys = np.char.add("the key of thing ", keys.astype("U7"))
    return pa.record_batch({"k": keys, "seq": np.arange(rows)})

path, small, workload, memory, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
warm = AdaptiveJoin(hr.Relation.open(small), on="k", memory="1500KiB")
for _ in range(30):
    for out in warm.join(batch(2000, 20_000)):
        pass
del warm
batches = [batch(100_000, n) for _ in range(8)] + [batch(5_000, n) for _ in range(40)]
relation = hr.Relation.open(path)
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = resident("VmHWM")
op = AdaptiveJoin(relation, on="k", memory=memory)
rows = 0
for some in batches:
    for out in op.join(some):
        rows += out.num_rows
op.stats.check()
print(json.dumps({"growth": resident("VmHWM") - before, "rows": rows, "peak": op.budget.peak}))
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    import numpy as np
    import pyarrow as pa

    import headrace as hr

    where = tmp_path_factory.mktemp("budget")
    for name, n in (("large", 800_000), ("middle", 100_000), ("small", 20_000)):
        keys = np.random.default_rng(0).permutation(n) * 2
        text = pa.array(np.char.add("some text of forty bytes or so, with ", (keys % 1000).astype("U4")))
        rows = pa.table({"k": keys, "a": keys * 3, "b": keys * 0.5, "s": text})
        hr.Relation.create(where / name, rows, key="k", shards=1)
        rows = rows.set_column(0, "k", pa.array(np.char.add("the key of thing ", keys.astype("U7"))))
        hr.Relation.create(where / f"{name}-text", rows, key="k", shards=1)
    return where


@pytest.mark.parametrize("workload", ["uniform", "skewed", "absent", "text"])
def test_contract_the_process_grows_by_no_more_than_the_budget_and_a_sixth(paths, workload):
    memory = 24 << 20
    suffix = "-text" if workload == "text" else ""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            paths / f"large{suffix}",
            paths / f"small{suffix}",
            workload,
            str(memory),
            "800000",
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["rows"] == (0 if workload == "absent" else 1_000_000)
    assert facts["peak"] <= memory
    assert facts["growth"] <= 1.15 * memory, f"{facts['growth'] / 2**20:.1f} MiB for a budget of 24 MiB"


WAITING = """
import json, sys
import numpy as np, pyarrow as pa
import headrace as hr
from headrace.semistream import HybridJoin, MeshJoin, SSIJ

def held():
    with open("/proc/self/status") as lines:
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))

kind, path, memory, text = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "text"
relation = hr.Relation.open(path)
rng = np.random.default_rng(0)
def batch(rows):
    keys = 2 * rng.integers(0, relation.num_rows, rows)
    notes = np.char.add("a note that came with it, no ", rng.integers(0, 10**6, rows).astype("U7"))
    return pa.record_batch({"k": np.char.add("the key of thing ", keys.astype("U7")) if text else keys, "note": notes})
def run(memory, batches):
    op, most, results = globals()[kind](relation, on="k", memory=memory), 0, 0
    for out in op.run(batch(4000) for _ in range(batches)):
        results += out.num_rows
        most = max(most, held())
    assert results == 4000 * batches
    return op, most
run("4MiB", 5)  # code, threads and pools that every later run shares
before = held()
op, most = run(memory, 120)
print(json.dumps({"growth": most - before, "peak": op.budget.peak}))
"""


@pytest.mark.parametrize(("kind", "keys"), [("MeshJoin", "integer"), ("HybridJoin", "text"), ("SSIJ", "integer")])
def test_contract_tuples_that_wait_with_texts_take_what_is_counted(paths, kind, keys):
    # The batches that come in are the caller's: in a pool that keeps nothing of those it let go, they do not count here.
    memory, environment = 24 << 20, {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    path = paths / ("middle-text" if keys == "text" else "middle")
    done = subprocess.run(
        [sys.executable, "-c", WAITING, kind, path, str(memory), keys],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=Path(__file__).parents[2],
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["peak"] <= memory
    assert facts["growth"] <= 1.15 * facts["peak"] + (2 << 20), facts
    assert facts["growth"] >= 0.6 * facts["peak"], "what is counted is not held"


REFRESHED = """
import json, sys
import numpy as np, pyarrow as pa
import headrace as hr
from headrace.semistream import MeshJoin, SSIJ, XHybridJoin

def held():
    with open("/proc/self/status") as lines:
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))

kind, path, memory, n = globals()[sys.argv[1]], sys.argv[2], sys.argv[3], int(sys.argv[4])
rng = np.random.default_rng(0)
def batch(rows):
    return pa.record_batch({"k": 2 * rng.integers(0, n, rows), "a": rng.random(rows), "b": rng.random(rows)})
def run(memory, batches):
    first = hr.Relation.open(path, version=1)
    op, most, results = kind(first, on="k", memory=memory), 0, 0
    for version in (1, 2, 3):
        for out in op.refresh(hr.Relation.open(path, version=version)):
            results += out.num_rows
            most = max(most, held())
        most = max(most, held())
        for _ in range(batches):
            op.offer(batch(4000))
            for out in op.advance():
                results += out.num_rows
                most = max(most, held())
    results += sum(out.num_rows for out in op.drain())
    assert results == 3 * batches * 4000 and op.relation.version == 3
    assert first.lookup([0]).num_rows == 1, "whoever has the old version open goes on with it"
    return op, most
run("9MiB", 2)
before = held()
op, most = run(memory, 25)
print(json.dumps({"growth": most - before, "peak": op.budget.peak}))
"""


@pytest.fixture(scope="module")
def three_versions(tmp_path_factory):
    """A relation by key and one by popularity, whose index takes 6 MB; their versions stay while this holds them."""
    import numpy as np
    import pyarrow as pa

    import headrace as hr

    n, where, opened = 500_000, tmp_path_factory.mktemp("versions"), []
    rows = pa.table({"k": np.arange(n) * 2, "v": np.zeros(n), "w": np.zeros(n)})
    asked = pa.table({"k": rows["k"], "frequency": np.random.default_rng(1).random(n)})
    for order in ("key", "frequency"):
        given = {"order": order, "frequencies": asked} if order == "frequency" else {}
        relation = hr.Relation.create(where / order, rows, key="k", shards=1, **given)
        for _ in range(2):
            opened.append(relation)
            relation.apply(upserts=rows.slice(n // 2, 1000))
            relation = relation.refresh()
    yield where, n
    for relation in opened:
        relation.close()


@pytest.mark.parametrize("kind", ["MeshJoin", "SSIJ", "XHybridJoin"])
def test_contract_a_refresh_takes_no_more_than_the_budget(three_versions, kind):
    """Two indexes beside each other, or two disk buffers, would be more than is allowed for."""
    where, n = three_versions
    memory, environment = 16 << 20, {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    path = where / ("frequency" if kind == "XHybridJoin" else "key")
    done = subprocess.run(
        [sys.executable, "-c", REFRESHED, kind, path, str(memory), str(n)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=Path(__file__).parents[2],
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["peak"] <= memory
    assert facts["growth"] <= 1.15 * facts["peak"] + (2 << 20), facts


CONDITION = """
import json, sys
import numpy as np, pyarrow as pa
import headrace as hr
from headrace.semistream import MeshJoin

def resident(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

kind, path, memory, many, batches = *sys.argv[1:4], *map(int, sys.argv[4:])
relation = hr.Relation.open(path)
rng = np.random.default_rng(0)
def looked(left, right):
    return np.zeros(left.num_rows, np.bool_)
conditions = {
    "range": hr.all_of(hr.compare("note", "<=", "s"), hr.predicate(looked, "k", right="k")),
    "similar": hr.all_of(hr.edit_distance("note", "s", at_most=1), hr.predicate(looked, "k", right="k")),
    "column": hr.predicate(looked, "k", right="k"),
}
def batch(rows):
    texts = "some text of forty bytes or so, with " if kind != "range" else "some text of forty bytes or so, with no "
    notes = np.char.add(texts, rng.integers(0, 10**4, rows).astype("U7"))
    return pa.record_batch({"k": rng.integers(0, 10**6, rows), "note": notes})
def run(memory, batches, many):
    op = MeshJoin(relation, on={"note": "s"} if kind == "column" else None, memory=memory, condition=conditions[kind], how="anti")
    results = 0
    for out in op.run(batch(many) for _ in range(batches)):
        results += out.num_rows
    assert results == many * batches
    return op
run("2MiB", 1, many // 10)  # code, threads and pools that every later run shares
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = resident("VmHWM")
op = run(memory, batches, many)
print(json.dumps({"growth": resident("VmHWM") - before, "peak": op.budget.peak}))
"""


@pytest.mark.parametrize(
    ("kind", "rows", "batches"),
    [
        ("range", 4000, 4),
        (
            "similar",
            250,
            1,
        ),  # each row is compared with each of the relation: five million pairs, a few thousand at a time
        pytest.param("similar", 4000, 1, marks=pytest.mark.soak),
        ("column", 4000, 4),
    ],
)
def test_contract_conditions_on_texts_take_what_is_counted(paths, kind, rows, batches):
    memory, environment = 6 << 20, {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(
        [sys.executable, "-c", CONDITION, kind, paths / "small", str(memory), str(rows), str(batches)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=Path(__file__).parents[2],
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["peak"] <= memory
    assert facts["growth"] <= 1.15 * facts["peak"] + (2 << 20), facts
