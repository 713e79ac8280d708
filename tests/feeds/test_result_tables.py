"""Results in tables: each once, across repeated steps, kills and other writers."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.errors import BadInput, OutsideFailure
from headrace.feeds.results import DeltaResults, ParquetResults
from tests.support.programs import append_results
from tests.support.programs.append_results import open_table, rows


def titles(kind, path):
    table = pq.read_table(path) if kind == "parquet" else DeltaTable(str(path)).to_pyarrow_table()
    return sorted(table.column("a.title").to_pylist())


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_step_is_added_once(tmp_path, kind):
    path = tmp_path / "results"
    table = open_table(kind, path)
    assert table.last is None
    assert [table.append(step, rows(step)) for step in (1, 2, 2, 5)] == [True, True, False, True]
    again = open_table(kind, path)
    assert again.last == 5
    assert [again.append(step, rows(step)) for step in (2, 5, 6)] == [False, False, True]
    assert titles(kind, path) == sorted(f"{step}/{k}" for step in (1, 2, 5, 6) for k in range(3))


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_step_without_results_leaves_nothing(tmp_path, kind):
    table = open_table(kind, tmp_path / "results")
    assert table.append(1, rows(1, 0)) and table.last is None
    assert table.append(1, rows(1)) and table.last == 1


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_two_writers_add_a_step_once(tmp_path, kind):
    path = tmp_path / "results"
    tables = [open_table(kind, path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for step in range(1, 4):
            added = list(pool.map(lambda table, step=step: table.append(step, rows(step)), tables))
            assert added.count(True) == 1
    assert titles(kind, path) == sorted(f"{step}/{k}" for step in range(1, 4) for k in range(3))


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_killed_writer_leaves_whole_steps(tmp_path, kind):
    """Killed in the middle of what it does, twice; whoever goes on repeats the last step and adds the next."""
    path = tmp_path / "results"
    program = Path(append_results.__file__)
    for kill in range(2):
        writer = subprocess.Popen([sys.executable, program, kind, path], stdout=subprocess.PIPE)
        seen = 0
        while seen < 2 * (kill + 1):
            line = writer.stdout.readline()
            assert line
            seen = int(line)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    last = open_table(kind, path).last
    assert last >= 4
    assert titles(kind, path) == sorted(f"{step}/{k}" for step in range(1, last + 1) for k in range(3))
    assert not open_table(kind, path).append(last, rows(last))


def test_several_queries_share_a_delta_table(tmp_path):
    path = tmp_path / "results"
    assert DeltaResults(path, "a").append(1, rows(1)) and DeltaResults(path, "b").append(1, rows(2))
    assert len(titles("delta", path)) == 6


def test_what_cannot_be_done_is_said(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(BadInput, match="is not a directory; give one"):
        ParquetResults(file)
    for table in (ParquetResults(tmp_path / "p"), DeltaResults(tmp_path / "d", "q")):
        with pytest.raises(BadInput, match="step=-1 is not a number from 0"):
            table.append(-1, rows(1))
    delta = DeltaResults(tmp_path / "d", "q")
    with pytest.raises(BadInput, match=r"column named 'dist\(a, b\)'; give it another name with AS"):
        delta.append(1, rows(1).rename_columns(["dist(a, b)", "n", "_id", "_places"]))
    delta.append(1, rows(1))
    with pytest.raises(OutsideFailure, match="results could not be added"):
        delta.append(2, rows(2).rename_columns(["other", "n", "_id", "_places"]))
    assert delta.last == 1
