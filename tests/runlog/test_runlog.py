"""The run log: the first attempt decides, whatever happens between; damage and other settings are refused by name."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.files import names_in
from headrace.runlog import files
from headrace.runlog.log import safe_name

ROWS = pa.table({"k": pa.array([1, None, 3], pa.int64()), "t": ["a", "b", None]})


def log(path, **options):
    return hr.RunLog(path, "q", "enrich", **{"shards": 2, **options})


def write(shard, batch, rows=ROWS, kind="waiting", **facts):
    return shard.write(kind, batch, rows.schema, rows.to_batches(), facts)


def read(shard, **options):
    return [value for file in shard.read("waiting", **options) for value in file.table()["k"].to_pylist()]


def numbers(*values):
    return pa.table({"k": pa.array(values, pa.int64())})


def test_what_is_written_is_read_by_later_batches_only(tmp_path):
    with log(tmp_path).shard(1) as shard:
        file = write(shard, 7, since=3)
        assert file.table().equals(ROWS)
        assert file.facts == {"since": 3, "rows": 3}
        assert list(shard.read("waiting", before=7)) == []
        assert [f.table() for f in shard.read("waiting", before=8)] == [ROWS]
        assert shard.last("waiting", before=8).facts["since"] == 3
        assert shard.find("waiting", 7).table().equals(ROWS)
        assert shard.find("waiting", 8) is None
        assert shard.find("other", 7) is None
    with log(tmp_path).shard(0) as shard:
        assert shard.last("waiting", before=8) is None


def test_the_first_attempt_decides(tmp_path):
    with log(tmp_path).shard(0) as shard:
        write(shard, 1, numbers(1), who="first")
        again = write(shard, 1, numbers(2), who="second")
        assert again.table() == numbers(1)
        assert again.facts["who"] == "first"
        path = shard.keep("dead_letter", 1, numbers().schema, numbers(1).to_batches(), {"why": "a"})
        shard.keep("dead_letter", 1, numbers().schema, numbers(2).to_batches())
        assert files.read_rows(path) == (numbers(1), {"why": "a"})
        shard.keep("dead_letter", 1, numbers().schema, numbers(3).to_batches(), replace=True)
        shard.keep("dead_letter", 1, numbers().schema, numbers(4).to_batches(), part="finish")
    kept = pq.read_table(tmp_path / "q" / "enrich" / "dead_letter")  # by any tool
    assert sorted(kept["k"].to_pylist()) == [3, 4]


def test_an_attempt_that_fails_while_it_writes_leaves_nothing(tmp_path):
    def rows():
        yield from ROWS.to_batches()
        raise RuntimeError("lost")

    with log(tmp_path).shard(0) as shard:
        with pytest.raises(RuntimeError, match="lost"):
            shard.write("waiting", 1, ROWS.schema, rows())
        assert shard.find("waiting", 1) is None
        assert names_in(shard.path) == [".lock"]


def test_facts_are_read_after_the_rows(tmp_path):
    facts = {}

    def rows():
        yield from ROWS.to_batches()
        facts["seen"] = True

    with log(tmp_path).shard(0) as shard:
        assert shard.write("waiting", 1, ROWS.schema, rows(), facts).facts["seen"]


def test_compaction_keeps_rows_and_the_last_batch(tmp_path):
    with log(tmp_path).shard(0) as shard:
        for batch in range(6):
            write(shard, batch, numbers(batch), since=0, at=batch)
        shard.compact("waiting", before=5)
        names = names_in(shard.path)
        assert names == [".lock", "0000000000-0000000004.waiting.arrow", "0000000005.waiting.arrow"]
        assert read(shard, before=5) == [0, 1, 2, 3, 4]
        assert shard.last("waiting", before=5).facts["at"] == 4
        assert shard.find("waiting", 5).table() == numbers(5)
        write(shard, 6, numbers(6))
        shard.compact("waiting", before=7)
        assert read(shard, before=7) == list(range(7))
        assert len(list(shard.path.iterdir())) == 2


def test_a_compaction_killed_between_its_steps_loses_and_doubles_nothing(tmp_path, monkeypatch):
    with log(tmp_path).shard(0) as shard:
        for batch in range(3):
            write(shard, batch, numbers(batch))
        with monkeypatch.context() as patch:
            patch.setattr(shard, "remove", lambda paths: None)
            shard.compact("waiting", before=3)
        assert len(list(shard.path.iterdir())) == 5
        assert read(shard, before=3) == [0, 1, 2]
        write(shard, 3, numbers(3))
        shard.compact("waiting", before=4)
        assert read(shard, before=4) == [0, 1, 2, 3]
        shard.expire("waiting", before=3)  # those that were replaced; the new one reaches to 3
        assert read(shard, before=4) == [0, 1, 2, 3]
        assert len(list(shard.path.iterdir())) == 2


def test_expiry(tmp_path):
    with log(tmp_path).shard(0) as shard:
        for batch in range(4):
            write(shard, batch, numbers(batch))
        shard.expire("waiting", before=2)
        assert read(shard, before=9) == [2, 3]
        assert read(shard, before=9, since=3) == [3]


@pytest.mark.parametrize("at", [0, 40, -60, -30, -1])
def test_a_changed_byte_is_found_and_named(tmp_path, at):
    with log(tmp_path).shard(0) as shard:
        path = write(shard, 1).path
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(hr.DamagedLog, match=path.name):
            shard.find("waiting", 1)
    with pytest.raises(hr.DamagedLog, match=path.name):
        log(tmp_path).describe()


@pytest.mark.parametrize("size", [0, 10, 200])
def test_a_file_cut_short_is_found_and_named(tmp_path, size):
    with log(tmp_path).shard(0) as shard:
        path = write(shard, 1).path
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(hr.DamagedLog, match=path.name):
            list(shard.read("waiting", before=2))
        kept = shard.keep("shed", 1, ROWS.schema, ROWS.to_batches())
        kept.write_bytes(kept.read_bytes()[:size])
        with pytest.raises(hr.DamagedLog, match=kept.name):
            files.read_rows(kept)


def test_another_shard_count_or_format_is_refused_by_name(tmp_path):
    there = log(tmp_path)
    with pytest.raises(hr.OtherLog, match=r"has 2 shards, and shards=3 is asked for; give shards=2"):
        log(tmp_path, shards=3)
    facts = there.path / "log.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"format": 9}))
    with pytest.raises(hr.OtherLog, match="has format 9, and this Headrace reads format 2"):
        log(tmp_path)
    facts.write_text("{")
    with pytest.raises(hr.DamagedLog, match=r"log\.json"):
        log(tmp_path)
    for bad in (0, True, "2"):
        with pytest.raises(hr.BadInput, match="shards="):
            log(tmp_path / "new", shards=bad)
    with pytest.raises(hr.BadInput, match="shard 2 is not one of the 2"):
        log(tmp_path / "new").shard(2)


@pytest.mark.parametrize("name", ["..", "../../x", "/etc", ".", "a/b", "a\0b", "a\nb", "x" * 500, "é" * 100, "\ud800"])
def test_no_name_leaves_the_directory(tmp_path, name):
    root = tmp_path / "state"
    where = hr.RunLog(root, name, name, shards=1).path
    assert where.resolve().is_relative_to(root.resolve())
    assert len(where.relative_to(root).parts) == 2
    assert where.parts[-1] == safe_name("query", name)


def test_different_names_stay_different():
    names = ["a/b", "a%2Fb", "a.b", "x" * 500, "x" * 501, "a", "A"]
    assert len({safe_name("query", n) for n in names}) == len(names)
    for bad in ("", None):
        with pytest.raises(hr.BadInput, match="query="):
            safe_name("query", bad)


def test_kinds_and_batches_that_are_none(tmp_path):
    with log(tmp_path).shard(0) as shard:
        for bad in ("", "../x", "a b", "A"):
            with pytest.raises(hr.BadInput, match="kind="):
                write(shard, 1, kind=bad)
            with pytest.raises(hr.BadInput, match="kind="):
                shard.keep(bad, 1, ROWS.schema, [])
        with pytest.raises(hr.BadInput, match="batch=-1"):
            write(shard, -1)


def test_one_attempt_at_a_time(tmp_path):
    with log(tmp_path).shard(0):
        with pytest.raises(hr.RunLogError, match="another attempt has held"), log(tmp_path).shard(0, patience=0.05):
            pass
        with log(tmp_path).shard(1):
            pass


KILLED = """
import sys, time, headrace as hr, pyarrow as pa
log = hr.RunLog(sys.argv[1], "q", "enrich", shards=2)
def rows():
    yield pa.record_batch({"k": [1]})
    print("writing", flush=True)
    time.sleep(60)
with log.shard(0) as shard:
    shard.write("waiting", 1, pa.schema({"k": pa.int64()}), rows())
"""


def test_a_writer_that_is_killed_leaves_no_lock_and_no_file(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"writing\n"
        lock, draft = reversed(names_in(tmp_path / "q" / "enrich" / "shard-0000"))
        assert lock == ".lock"
        assert draft.startswith(".draft-")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    with log(tmp_path).shard(0, patience=0) as shard:  # a lock that it left would be refused at once
        assert names_in(shard.path) == [".lock"]
        assert write(shard, 1, numbers(2)).table() == numbers(2)


def test_describe_and_the_command(tmp_path):
    there = log(tmp_path)
    with there.shard(0) as shard:
        write(shard, 1)
        write(shard, 2)
        shard.compact("waiting", before=3)
        shard.keep("dead_letter", 2, ROWS.schema, ROWS.to_batches())
    with there.shard(1) as shard:
        write(shard, 4)
    hr.RunLog(tmp_path, "q", "other\x1b[31m", shards=1)
    facts = there.describe()
    assert facts["state"]["waiting"] | {"bytes": 0} == {"files": 2, "rows": 9, "bytes": 0}
    assert facts["kept"]["dead_letter"]["rows"] == 3
    assert (facts["first_batch"], facts["last_batch"]) == (1, 4)
    assert [one.operator for one in hr.RunLog.find(tmp_path, "q")] == ["enrich", "other\x1b[31m"]
    assert hr.RunLog.find(tmp_path, "none") == []
    run = CliRunner().invoke(app, ["log", str(tmp_path), "--json"])
    assert json.loads(run.stdout)[0]["state"] == facts["state"]
    run = CliRunner().invoke(app, ["log", str(tmp_path)])
    assert "waiting" in run.stdout
    assert "\x1b" not in run.stdout
    for nothing in (tmp_path / "missing", Path(there.path)):
        run = CliRunner().invoke(app, ["log", str(nothing)])
        assert run.exit_code == 2
        assert "give the state directory of a query" in run.stderr
