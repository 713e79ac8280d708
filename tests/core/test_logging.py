"""What is logged, by the logger `headrace`: plans, versions, recoveries; and nothing unless somebody listens."""

import logging
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.progressive import ProgressiveJoin
from headrace.relation.manifest import UNFINISHED
from headrace.semistream import AdaptiveJoin, MeshJoin

ROWS = pa.table({"k": list(range(5_000)), "v": ["x" * 50] * 5_000})


@pytest.fixture
def lines(caplog):
    """The lines so far, as "LEVEL logger: message"."""
    caplog.set_level(logging.DEBUG, "headrace")

    def said(level: str = "INFO") -> list[str]:
        return [f"{r.name}: {r.getMessage()}" for r in caplog.records if r.levelname == level]

    return said


def one(lines: list[str], *parts: str) -> str:
    found = [line for line in lines if all(part in line for part in parts)]
    assert len(found) == 1, (parts, lines)
    return found[0]


def test_the_life_of_a_relation(lines, tmp_path):
    rel = hr.Relation.create(
        tmp_path / "r",
        pa.concat_tables([ROWS, pa.table({"k": [None], "v": ["x"]}, ROWS.schema)]),
        key="k",
        null_keys="drop",
    )
    made = one(lines(), "headrace.relation.create: created", str(tmp_path / "r"))
    assert f"version 1, 5,000 rows in {rel.num_pages} pages, " in made and made.endswith("s")
    one(lines(), "dropped 1 rows with a null key")
    hr.Relation.open(tmp_path / "r").close()
    one(lines(), "headrace.relation.relation: opened", "version 1, 5,000 rows")
    rel.apply(deletes=[1, 2])
    one(lines(), "changed", "version 2, 4,998 rows")
    rel.compact()
    one(lines(), "compacted", "version 3, 4,998 rows")
    rel.close()
    hr.Relation.open(tmp_path / "r").apply(deletes=[3])
    assert any("removed version" in line for line in lines("DEBUG"))
    assert sum("opened" in line for line in lines()) == 2, "what writers open inside is not said"


def test_what_a_stopped_create_left_is_removed_and_said(lines, tmp_path):
    left = tmp_path / f"r{UNFINISHED}999999999-abcdef01"
    left.mkdir()
    os.utime(left, (0, 0))  # of another host it may be at work for an hour
    hr.Relation.create(tmp_path / "r", ROWS, key="k")
    one(lines(), "removed", left.name, "which a create left that was stopped")


def test_the_plan_and_the_end_of_a_join(lines, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", ROWS, key="k", page_size="4KiB")
    stream = pa.table({"k": np.random.default_rng(1).integers(0, 9_000, 40_000)})
    out = pa.Table.from_batches(
        AdaptiveJoin(rel, on="k", memory="256KiB", order="any").run(stream.to_batches(max_chunksize=4_000))
    )
    plan = one(lines(), "AdaptiveJoin('", "memory='256KiB'")
    assert "popular rows are held and others read, results in any order; holds " in plan and "index " in plan
    end = one(lines(), "AdaptiveJoin: 40,000 tuples in", f"{out.num_rows:,} results")
    assert "pages read in" in end
    phases = [line for line in lines("DEBUG") if "headrace.semistream.adaptive.unordered: join phase: " in line]
    assert phases and len(phases) < 200, "a line a phase, and not a row"
    list(AdaptiveJoin(rel, on="k", memory="64MiB").run(stream))
    one(lines(), "AdaptiveJoin('", "the relation fits the budget and is held whole")
    list(MeshJoin(rel, on="k", memory="1MiB").run(stream))
    one(lines(), "MeshJoin('", "waits for many tuples to share a read")


def test_flushes_of_a_progressive_join(lines):
    op = ProgressiveJoin(hr.equal("k"), memory="1MiB")
    rng = np.random.default_rng(2)
    for _ in range(40):
        for side in ("left", "right"):
            list(op.insert(side, pa.record_batch({"k": rng.integers(0, 10**9, 2_000), "text": ["y" * 30] * 2_000})))
    list(op.finish())
    flushes = [line for line in lines("DEBUG") if "headrace.progressive.memory.evict: flush " in line]
    assert len(flushes) == op.stats.flushes > 0


def test_nothing_is_written_unless_asked_for(tmp_path):
    program = "import headrace as hr, pyarrow as pa, sys;hr.Relation.create(sys.argv[1], pa.table({'k': [1]}), key='k')"

    def stderr(path: str, **environment: str) -> str:
        command = [sys.executable, "-c", program, str(tmp_path / path)]
        given = {k: v for k, v in os.environ.items() if k != "HEADRACE_LOG"} | environment
        return subprocess.run(command, capture_output=True, text=True, check=True, env=given).stderr

    assert stderr("a") == ""
    said = stderr("b", HEADRACE_LOG="info")
    assert "INFO headrace.relation.create: created" in said and "DEBUG" not in said
    assert len(said.splitlines()) == 1


def test_the_package_has_a_handler_that_does_nothing():
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("headrace").handlers)
