"""kill -9 of a query that sheds, and of its replay: in the end every result is in the table, and once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.shedding.ledger import Ledger
from tests.support.delta_tables import by_deltalake, in_log, on_disk, rows
from tests.support.programs import shed_and_replay
from tests.support.programs.killable_job import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ROWS, KEYS = 15, 500, 200  # three files a micro-batch
LAST = FILES // 3 - 1
PATIENCE = 150


def make(root: Path) -> Counter:
    """The relation (key k is there k % 4 times) and the input; gives the rows that must be in the table."""
    rng = np.random.default_rng(11)
    keys = np.repeat(np.arange(KEYS), np.arange(KEYS) % 4)
    names = [f"name {i}" for i in range(keys.size)]
    hr.Relation.create(root / "relation", pa.table({"k": keys, "name": names}), key="k").close()
    of: dict[int, list[str]] = {}
    for k, name in zip(keys.tolist(), names, strict=True):
        of.setdefault(k, []).append(name)
    (root / "in").mkdir()
    (root / "scratch").mkdir()
    wanted: Counter = Counter()
    for n in range(FILES):
        drawn = rng.integers(0, KEYS + 20, ROWS)
        pq.write_table(pa.table({"k": drawn, "n": np.full(ROWS, n)}), root / "in" / f"{n:05d}.parquet")
        wanted.update(repr([k, n, name]) for k in drawn.tolist() for name in of.get(k, ()))
    return wanted


def life(root: Path, until=None, hold: int = -1) -> int | None:
    """One run of the program, killed when `until` says so, or when it gets no further; its exit code, None if it was killed."""
    held = Job(root).held
    held.unlink(missing_ok=True)
    with (root / "log").open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, shed_and_replay.__file__, str(root)],
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=os.environ | {"HEADRACE_HOLD": str(hold)},
        )
    tree: list[psutil.Process] = []
    try:
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            if until is not None and (until() or held.exists()):
                return None
            time.sleep(0.005)
        assert process.returncode is not None, f"it did not end in {PATIENCE} s"
        return process.returncode
    finally:
        if process.poll() is None:
            tree = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for child in tree:
            if child.is_running():
                child.kill()


@pytest.mark.parametrize("lives", [3, pytest.param(4, marks=pytest.mark.soak)])
def test_nothing_is_lost_or_doubled(tmp_path, lives):
    wanted = make(tmp_path)
    state, table = tmp_path / "state", tmp_path / "table"

    def shed_files(batch: int) -> bool:
        return bool(list(state.glob(f"*/*/shed/shard-0000-{batch:010d}-*.parquet")))

    def taken(batch: int) -> bool:
        return bool(list(state.glob(f"*/*/took/{batch:010d}-*.json")))

    def replaying() -> bool:
        """Files are written that the table does not have yet, and the query has ended."""
        return taken(LAST) and Ledger.find(state)[0].finished() == LAST and len(on_disk(table)) > len(in_log(table))

    if lives == 3:
        assert life(tmp_path, lambda: taken(3), 3) is None  # stands still before micro-batch 3 is done
    else:
        # Each stands still before its third micro-batch is done: the second life begins with 1 or 2, and 3 is taken.
        assert life(tmp_path, lambda: shed_files(1), 2) is None
        assert life(tmp_path, lambda: taken(3), 2) is None
    assert taken(3)
    (ledger,) = Ledger.find(state)
    assert ledger.debt() > 0
    life(tmp_path, replaying)
    assert life(tmp_path) == 0, (tmp_path / "log").read_text()[-3000:]
    assert rows(by_deltalake(table), ["k", "n", "name"]) == wanted
    assert ledger.debt() == 0 and ledger.replayed()[1] > 0.3 * FILES * ROWS
