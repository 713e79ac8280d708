"""Every file of a run log and of a ledger has a checksum of all its bytes: one wrong byte anywhere is found and named."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.files.checked_json import dump_checked, parse_checked
from headrace.relation.manifest import Manifest
from headrace.runlog import files
from headrace.shedding import Cut
from headrace.shedding.ledger import Decision, Ledger, TaskRecord
from headrace.spark.recorded import Recorded, RecordedJoin, write_recorded
from tests.support.flipped_bytes import flipped

ROWS = pa.table({"k": pa.array([1, None, 3] * 20, pa.int64()), "t": ["a", "b" * 30, None] * 20})
JOIN = RecordedJoin(
    path="r",
    on="k",
    how="inner",
    algorithm="auto",
    order="any",
    memory=1,
    columns=None,
    suffix=None,
    version_column=None,
    condition=None,
    unmatched=None,
)


@pytest.fixture(params=[400, pytest.param(1 << 20, marks=pytest.mark.soak)], ids=["many", "all"])
def most(request):
    """Bytes of a file that are damaged, one after the other, at most."""
    return request.param


def refused(path, read, most):
    """Every wrong byte is found before anything of the file is used, and the file is named."""
    found = 0
    for at in flipped(path, most=most):
        with pytest.raises((hr.DamagedLog, hr.OtherLog), match=path.name) as error:
            read()
        words = ("restore it", "remove it", "go on with")  # what to do
        assert any(word in str(error.value) for word in words), (at, str(error.value))
        found += 1
    assert found > 20
    read()
    not_regular(path, read)


def not_regular(path, read):
    """What is no regular file is refused by name, and neither followed nor waited for."""
    away = path.with_name("away")
    path.rename(away)
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to(away), lambda path: path.symlink_to("nowhere")):
        make(path)
        with pytest.raises(hr.DamagedLog, match=rf"{path.name} is damaged: it is not a regular file; "):
            read()
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    away.rename(path)
    read()


def test_contract_state(tmp_path, most):
    log = hr.RunLog(tmp_path, "q", "enrich", shards=1)
    with log.shard(0) as shard:
        path = shard.write("waiting", 1, ROWS.schema, ROWS.to_batches(), {"since": 3}).path
        refused(path, lambda: shard.find("waiting", 1), most)
        refused(path, lambda: list(shard.read("waiting", before=2)), most)
        assert shard.find("waiting", 1).table().equals(ROWS)


def test_contract_kept_rows(tmp_path, most):
    log = hr.RunLog(tmp_path, "q", "enrich", shards=1)
    with log.shard(0) as shard:
        path = shard.keep("dead_letter", 1, ROWS.schema, ROWS.to_batches(), {"why": "a"})
    refused(path, lambda: files.read_rows(path), most)
    refused(path, log.describe, most)
    assert files.read_rows(path) == (ROWS, {"why": "a"})
    for end in (0, 7, 100, path.stat().st_size - 1):
        short = tmp_path / "short.parquet"
        short.write_bytes(path.read_bytes()[:end])
        with pytest.raises(hr.DamagedLog, match=r"short\.parquet"):
            files.count_rows(short)


def test_kept_rows_whose_values_look_like_a_checksum(tmp_path, most):
    """Statistics of the columns are in the footer too."""
    rows = pa.table({"headrace-crc32=00000000": ["headrace-crc32=00000000", "headrace-crc32=ffffffff"]})
    path = tmp_path / "rows.parquet"
    files.write_rows(
        path, path.parent, rows.schema, rows.to_batches(), {"headrace-crc32=00000000": "headrace-crc32=00000000"}
    )
    assert files.count_rows(path) == 2
    assert files.read_rows(path)[0] == rows == pq.read_table(path)
    refused(path, lambda: files.count_rows(path), most)


def test_parquet_of_others_is_no_kept_file(tmp_path):
    pq.write_table(ROWS, tmp_path / "other.parquet")
    with pytest.raises(hr.DamagedLog, match=r"other\.parquet is damaged: its end has no checksum"):
        files.count_rows(tmp_path / "other.parquet")


def test_contract_what_a_log_says_of_itself(tmp_path, most):
    log = hr.RunLog(tmp_path, "q", "enrich", shards=1)
    refused(log.path / "log.json", lambda: hr.RunLog(tmp_path, "q", "enrich", shards=1), most)
    refused(log.path / "log.json", lambda: hr.RunLog.find(tmp_path), most)


def test_a_log_of_the_format_before_is_refused_by_name(tmp_path):
    path = hr.RunLog(tmp_path, "q", "enrich", shards=1).path / "log.json"
    path.write_text(json.dumps({"log": "headrace", "format": 1, "query": "q", "operator": "enrich", "shards": 1}))
    with pytest.raises(
        hr.OtherLog, match="has format 1, and this Headrace reads format 2; go on with the Headrace that"
    ):
        hr.RunLog(tmp_path, "q", "enrich", shards=1)


def test_contract_a_ledger(tmp_path, most):
    """Its decisions, timings, shed rows and marks; each decides which rows are joined, and when."""
    ledger = Ledger(tmp_path, "query", "shed 0 rel")
    for batch in (0, 1):
        ledger.decide(batch, "run a", Decision(Cut(1.5, 7), 0.5, 7, 9))
        ledger.decided(batch, "run b")
        draft = ledger.draft(batch, 1, 0, ROWS.schema)
        draft.add(ROWS.to_batches()[0])
        draft.commit()
        ledger.record_task(batch, 1, 0, TaskRecord(100, 60, 1.0, "x", 4))
    ledger.mark_replayed(0)
    ledger.finish(1)
    write_recorded(ledger.path, json.dumps({"fields": []}), [JOIN])

    readers = {
        "log.json": lambda: Ledger(tmp_path, "query", "shed 0 rel"),
        "0000000001.decision.arrow": lambda: ledger.decided(1, "run a"),
        "0000000001.rerun1.arrow": lambda: ledger.debt(),
        "0000000001-1-0.json": lambda: ledger.history(2, workers=2),
        ledger.shed_file(1, 1, 0).name: lambda: ledger.debt(),
        "replayed.json": lambda: ledger.owed(1),
        "finished.json": lambda: ledger.finished(),
        "join.json": lambda: Recorded.read(ledger.path),
    }
    there = {
        path.name: path
        for path in ledger.path.rglob("*")
        if path.is_file() and path.name[:10] not in ("0000000000", ".lock")
    }
    assert set(there) == set(readers)
    for name, read in readers.items():
        refused(there[name], read, most)
    assert (ledger.debt(), ledger.replayed(), ledger.finished()) == (60, (0, 60), 1)


def test_a_damaged_description_of_the_joins_is_written_again(tmp_path):
    write_recorded(tmp_path, json.dumps({"fields": []}), [JOIN])
    (tmp_path / "join.json").write_bytes(b"\xff")
    write_recorded(tmp_path, json.dumps({"fields": []}), [JOIN])
    assert Recorded.read(tmp_path).joins == (JOIN,)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b'"text"', b"\x00" * 50, b'{"a": 1}', b'{"a": 1, "checksum": 1}', b"[" * 100_000],
)
def test_what_is_no_checked_json_is_refused(text):
    with pytest.raises(ValueError, match=r"^its? "):
        parse_checked(text)


@pytest.mark.parametrize("depth", range(300, 1000, 20))
def test_what_is_nested_too_deep_is_refused(depth, tmp_path):
    """Some depths can be read and not be written again, which is how the checksum is compared."""
    nested = b"[" * depth + b"]" * depth
    with pytest.raises(ValueError, match=r"^its? "):
        parse_checked(b'{"a": %s, "checksum": 1}' % nested)
    path = tmp_path / "manifest-000001.json"
    path.write_bytes(b'{"relation": "headrace", "format": 1, "notes": %s, "checksum": 1}' % nested)
    with pytest.raises(hr.DamagedRelation, match=path.name):
        Manifest.load(path)


@pytest.mark.parametrize("facts", [{}, {"a": 1e300, "b": [None, {"c": "é\ud800"}]}, {"inf": float("inf"), "": True}])
def test_facts_come_back_as_they_were(facts):
    assert parse_checked(dump_checked(facts)) == facts
