"""Joins whose memory the index does not fit: they read it in part, and give what brute force gives."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.relation import Disk
from headrace.semistream import SSIJ, AdaptiveJoin, HybridJoin, IndexNestedLoop, XHybridJoin
from headrace.semistream.adaptive.group import Group
from tests.support.join_oracle import tuples
from tests.support.malformed_pages import rewrite_manifest
from tests.support.paged_relations import by_frequency, by_key, integer_rows, long_keys, text_rows

TEXT_ROWS, INTEGER_ROWS = 25_000, 60_000
MEMORY = 400 << 10  # bytes: less than either index
OPERATORS = {
    "inl": IndexNestedLoop,
    "hybrid": HybridJoin,
    "xhybrid": XHybridJoin,
    "ssij": SSIJ,
    "adaptive": AdaptiveJoin,
    "adaptive in any order": lambda *args, **options: AdaptiveJoin(*args, order="any", **options),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A relation in key order as it was made, the same with pages that an update moved, and one by popularity."""
    where = tmp_path_factory.mktemp("paged")
    by_key(where / "key", TEXT_ROWS).close()
    with by_key(where / "moved", TEXT_ROWS) as rel:
        rel.apply(*changes())
    by_frequency(where / "frequency", INTEGER_ROWS).close()
    return where


def changes():
    rows = text_rows(TEXT_ROWS)
    return rows.slice(0, 50).set_column(1, "v", pa.array(np.arange(50) - 100)), rows["k"].slice(50, 50)


def expected(name, batches):
    """The rows of the relation that the keys of a stream have, by a dictionary; half of the keys have none."""
    rows = integer_rows(INTEGER_ROWS) if name == "frequency" else text_rows(TEXT_ROWS)
    values = dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))
    if name == "moved":
        upserts, deletes = changes()
        values |= dict(zip(upserts["k"].to_pylist(), upserts["v"].to_pylist(), strict=True))
        for key in deletes.to_pylist():
            del values[key]
    return [
        (key, seq, values.get(key))
        for batch in batches
        for key, seq in zip(batch["k"].to_pylist(), batch["seq"].to_pylist(), strict=True)
    ]


def stream(name, batches=4, rows=1500):
    rng = np.random.default_rng(3)
    most = 2 * (INTEGER_ROWS if name == "frequency" else TEXT_ROWS)
    for i in range(batches):
        numbers = (most * rng.random(rows) ** 2).astype(np.int64)
        keys = pa.array(numbers) if name == "frequency" else long_keys(numbers)
        yield pa.record_batch({"k": keys, "seq": np.arange(i * rows, (i + 1) * rows)})


def runs(name, relation):
    return ("xhybrid" in name) <= (relation == "frequency")


CASES = [(o, r) for o in OPERATORS for r in ("key", "moved", "frequency") if runs(o, r)]


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize(("operator", "name"), CASES)
def test_oracle_a_join_whose_index_does_not_fit(paths, operator, name, how):
    relation = hr.Relation.open(paths / name, disk=Disk("simulated"))
    assert relation.index_bytes > 1.5 * MEMORY
    op = OPERATORS[operator](relation, on="k", memory=MEMORY, how=how)
    # HYBRIDJOIN loads a partition for each tuple that is the oldest, one after the other.
    batches = list(stream(name, rows=300 if "hybrid" in operator else 1500))
    got = tuples(op.run(batches))
    wanted = expected(name, batches)
    assert sorted(map(repr, got)) == sorted(repr(row) for row in wanted if how == "left" or row[2] is not None)
    op.stats.check()
    assert op.stats.index_pages_read > 0
    assert op.budget.peak <= MEMORY
    assert op.stats.memory["index"] < MEMORY / 2
    assert relation.opened._indexes is None  # private: nothing else loaded the index as a whole


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_an_index_that_fits_is_in_memory_as_a_whole(paths, operator):
    name = "frequency" if operator == "xhybrid" else "key"
    relation = hr.Relation.open(paths / name, disk=Disk("simulated"))
    memory = relation.index_bytes + (2 << 20)
    op = OPERATORS[operator](relation, on="k", memory=memory)
    tuples(op.run(stream(name, batches=2)))
    assert op.stats.index_pages_read == op.stats.index_reads == 0
    assert op.stats.memory["index"] == relation.index_bytes


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_without_index_pages_an_index_that_does_not_fit_is_refused(tmp_path, operator):
    """A relation that an earlier release wrote, with what would do."""
    make = by_frequency if operator == "xhybrid" else by_key
    with make(tmp_path / "r", INTEGER_ROWS if operator == "xhybrid" else TEXT_ROWS) as rel:
        least = rel.index_bytes
    rewrite_manifest(tmp_path / "r", lambda manifest: [setattr(s, "fences", None) for s in manifest.shards])
    with pytest.raises(hr.MemoryRefused, match="give ") as refused:
        OPERATORS[operator](hr.Relation.open(tmp_path / "r"), on="k", memory=MEMORY)
    said = str(refused.value).rsplit("give ", 1)[1].split(" ")[0]
    assert hr.units.parse_size(said) > 0.99 * least


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_what_is_said_to_be_enough_is(paths, operator):
    name = "frequency" if operator == "xhybrid" else "key"
    relation = hr.Relation.open(paths / name, disk=Disk("simulated"))
    with pytest.raises(hr.MemoryRefused) as refused:
        OPERATORS[operator](relation, on="k", memory=20_000)
    least = round(1.01 * hr.units.parse_size(str(refused.value).rsplit("give ", 1)[1].split(" ")[0]))
    assert least < relation.index_bytes / 2
    op = OPERATORS[operator](relation, on="k", memory=least)
    batches = list(stream(name, batches=1, rows=200))
    got = tuples(op.run(batches))
    assert sorted(map(repr, got)) == sorted(repr(row) for row in expected(name, batches) if row[2] is not None)


def test_ranges_of_keys_with_an_index_that_does_not_fit(paths):
    relation = hr.Relation.open(paths / "moved", disk=Disk("simulated"))
    numbers = np.random.default_rng(4).integers(0, 2 * TEXT_ROWS, 60)
    batch = pa.record_batch({"a": long_keys(numbers), "b": long_keys(numbers + 90)})
    op = SSIJ(relation, memory=MEMORY, condition=hr.between("k", "a", "b", of="right"))
    got = sorted(map(repr, tuples(op.run([batch]))))
    rows = list(relation.scan())
    every = sorted((k, v) for some in rows for k, v in zip(some["k"].to_pylist(), some["v"].to_pylist(), strict=True))
    wanted = [
        (a, b, k, v)
        for a, b in zip(batch["a"].to_pylist(), batch["b"].to_pylist(), strict=True)
        for k, v in every
        if a <= k <= b
    ]
    assert got == sorted(map(repr, wanted))
    assert op.stats.index_pages_read > 0


def test_ssij_goes_on_with_another_version_whose_index_does_not_fit(tmp_path):
    relation = by_key(tmp_path / "r", TEXT_ROWS, disk=Disk("simulated"))
    op = SSIJ(relation, on="k", memory=MEMORY)
    first, second = stream("key", batches=2)
    got = tuples(op.run([first]))
    relation.apply(*changes())
    got += tuples(op.refresh())
    got += tuples(op.run([second]))
    wanted = expected("key", [first]) + expected("moved", [second])
    assert sorted(map(repr, got)) == sorted(repr(row) for row in wanted if row[2] is not None)


def test_workers_of_a_group_read_the_index_in_part(paths, tmp_path):
    """Each worker of two has its own upper part and pool while it joins, and they are counted for both."""
    limit = 600 << 10
    for name in ("key", "moved", "key"):
        relation = hr.Relation.open(paths / name)
        assert relation.index_bytes > limit
        op = AdaptiveJoin(relation, on="k", memory=limit, group=Group(tmp_path, 2))
        batches = list(stream(name, batches=2))
        assert op.enter()
        got = [row for batch in batches for row in tuples(op.join(batch))]
        op.leave()
        assert got == [row for row in expected(name, batches) if row[2] is not None]
        assert op.stats.index_pages_read > 0
        assert op.stats.memory["index"] < limit / 2


SCRIPT = """
import json, sys
import numpy as np, pyarrow as pa
import headrace as hr
from headrace.semistream import ALGORITHMS

def resident(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

path, small, algorithm, memory, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
rng = np.random.default_rng(5)
def batch(n):
    return pa.record_batch({"k": 2 * rng.integers(0, n, 20_000), "seq": np.arange(20_000)})

make = ALGORITHMS[algorithm]
warm = make(hr.Relation.open(small), on="k", memory="400KiB")
for out in warm.run(batch(50_000) for _ in range(3)):
    pass
assert warm.stats.index_pages_read > 0
del warm, out
relation = hr.Relation.open(path)
batches = [batch(rows) for _ in range(5)]
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = resident("VmHWM")
op = make(relation, on="k", memory=memory)
found = 0
for out in op.run(batches):
    found += out.num_rows
op.stats.check()
print(json.dumps({
    "growth": resident("VmHWM") - before, "rows": found, "index": relation.index_bytes, "read": op.stats.index_pages_read
}))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    where = tmp_path_factory.mktemp("large")
    by_frequency(where / "large", 1_000_000, page_size=8192).close()
    by_frequency(where / "small", 50_000).close()
    return where


@pytest.mark.parametrize("algorithm", ["inl", "hybridjoin", "xhybridjoin", "ssij", "adaptive"])
def test_contract_a_process_whose_index_is_larger_than_its_budget_grows_by_no_more_than_the_budget(large, algorithm):
    """A million keys in 12 MB of index, joined in 3 MiB. A megabyte beside the budget is the interpreter's and malloc's."""
    memory = 3 << 20
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, large / "large", large / "small", algorithm, str(memory), "1000000"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["index"] > 3 * memory
    assert found["read"] > 0
    assert found["rows"] == 100_000
    assert found["growth"] < memory + (1 << 20), found
