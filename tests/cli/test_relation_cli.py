"""``headrace relation`` on real relations."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from headrace.cli import app

ROWS = 5_000


def run(*args: object):
    return CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "120", "NO_COLOR": "1"})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    names = [None if i == 3 else f"name {i}" for i in range(ROWS)]
    pq.write_table(pa.table({"id": range(ROWS), "name": names}), tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


@pytest.fixture
def relation(source: Path, tmp_path: Path) -> Path:
    result = run("relation", "create", source, tmp_path / "r.rel", "--key", "id")
    assert result.exit_code == 0, result.stderr
    return tmp_path / "r.rel"


def test_create_says_what_it_made(source, tmp_path):
    result = run("relation", "create", source, tmp_path / "r.rel", "--key", "id", "--shards", 3)
    assert result.exit_code == 0, result.stderr
    assert f"{ROWS:,} rows" in result.stdout


def test_create_replaces_only_when_told_and_drops_null_keys_only_when_told(relation, tmp_path):
    pq.write_table(pa.table({"id": [1, None], "name": ["a", "b"]}), tmp_path / "new.parquet")
    args = ("relation", "create", tmp_path / "new.parquet", relation, "--key", "id")
    refused = run(*args)
    assert refused.exit_code == 2
    assert "overwrite" in refused.stderr
    refused = run(*args, "--overwrite")
    assert refused.exit_code == 2
    assert "null" in refused.stderr
    assert json.loads(run("relation", "describe", relation, "--json").stdout)["rows"] == ROWS
    assert run(*args, "--overwrite", "--drop-null-keys").exit_code == 0
    assert json.loads(run("relation", "describe", relation, "--json").stdout)["rows"] == 1


def test_create_json_is_the_description(source, tmp_path):
    made = run("relation", "create", source, tmp_path / "r.rel", "-k", "id", "--json")
    described = run("relation", "describe", tmp_path / "r.rel", "--json")
    assert json.loads(made.stdout) == json.loads(described.stdout)


def test_create_with_a_composite_key(source, tmp_path):
    pq.write_table(pa.table({"a": [1, 1], "b": ["x", "y"], "v": [10, 20]}), source)
    made = run("relation", "create", source, tmp_path / "r.rel", "-k", "a", "-k", "b")
    assert made.exit_code == 0, made.stderr
    found = run("relation", "lookup", tmp_path / "r.rel", "1,y", "--json")
    assert json.loads(found.stdout) == [{"a": 1, "b": "y", "v": 20}]


@pytest.mark.parametrize(
    "wrong",
    [("--key", "nope"), ("--key", "id", "--page-size", "lots"), ("--key", "id", "--fill", "7")],
)
def test_create_refuses_in_one_line(wrong, source, tmp_path):
    result = run("relation", "create", source, tmp_path / "r.rel", *wrong)
    assert result.exit_code == 2
    assert result.stderr.startswith("headrace: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "r.rel").exists()


def test_create_from_nothing(tmp_path):
    result = run("relation", "create", tmp_path / "no.parquet", tmp_path / "r.rel", "--key", "id")
    assert result.exit_code == 2
    assert "no.parquet" in result.stderr


def test_describe(relation):
    result = run("relation", "describe", relation)
    assert result.exit_code == 0
    assert str(ROWS) in result.stdout


def test_lookup(relation):
    result = run("relation", "lookup", relation, 7, 3, 4999, "--json")
    rows = {row["id"]: row["name"] for row in json.loads(result.stdout)}
    assert rows == {7: "name 7", 3: None, 4999: "name 4999"}
    assert "name 7" in run("relation", "lookup", relation, 7).stdout


def test_lookup_of_absent_keys(relation):
    assert run("relation", "lookup", relation, "--", -1).stdout == "no rows\n"
    assert json.loads(run("relation", "lookup", relation, "--json", "--", -1).stdout) == []


def test_lookup_of_a_bad_key(relation):
    result = run("relation", "lookup", relation, "seven")
    assert result.exit_code == 2
    assert "'seven' is not a value of column id (int64" in result.stderr


@pytest.mark.parametrize("command", ["describe", "verify"])
def test_what_is_not_a_relation(command, tmp_path):
    result = run("relation", command, tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith("headrace: ")


def test_verify(relation):
    assert run("relation", "verify", relation).exit_code == 0
    assert json.loads(run("relation", "verify", relation, "--json").stdout)["damaged"] is False


def test_verify_names_the_damage(relation):
    largest = max((f for f in relation.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 0x40
    largest.write_bytes(data)

    result = run("relation", "verify", relation)
    assert result.exit_code == 1
    for word in ("shard", "page", largest.name):
        assert word in result.stderr
    found = json.loads(run("relation", "verify", relation, "--json").stdout)
    assert found["damaged"] is True
    assert found["page"] is not None


def flipped(relation, *globs):
    for glob in globs:
        path = next(relation.glob(glob))
        data = bytearray(path.read_bytes())
        data[100] ^= 0x40
        path.write_bytes(data)


def test_verify_names_all_damage_and_keeps_a_pace(relation):
    flipped(relation, "shard-0000-*.pages", "shard-0001-*.filter")
    result = run("relation", "verify", relation, "--pace", "1GiB/s")
    assert result.exit_code == 1
    assert [line.startswith("headrace: shard ") for line in result.stderr.splitlines()] == [True, True]
    found = json.loads(run("relation", "verify", relation, "--pace", "100000", "--json").stdout)
    assert [(one["shard"], one["page"]) for one in found["damage"]] == [(0, 0), (1, None)]
    assert (found["shard"], found["page"]) == (0, 0)
    refused = run("relation", "verify", relation, "--pace", "quick")
    assert refused.exit_code == 2 and "--pace quick is not a pace" in refused.stderr.replace("'", "")


def test_verify_repairs_from_a_source(relation, source, tmp_path):
    flipped(relation, "shard-0000-*.pages", "shard-0001-*.index")
    table = pq.read_table(source)
    pq.write_table(table.slice(0, table.num_rows // 2), tmp_path / "half.parquet")
    refused = run("relation", "verify", relation, "--repair-from", tmp_path / "half.parquet")
    assert refused.exit_code == 2
    assert "rows where" in refused.stderr and "give --accept-changes to take its rows" in refused.stderr
    done = run("relation", "verify", relation, "--repair-from", source)
    assert done.exit_code == 0, done.stderr
    assert "version 2: shard 0, 1 written anew" in done.stdout and len(done.stderr.splitlines()) == 2
    again = json.loads(run("relation", "verify", relation, "--repair-from", source, "--json").stdout)
    assert (again["damaged"], again["repaired"], again["version"]) == (False, [], 2)
    flipped(relation, "shard-0000-*.pages")
    args = ("--repair-from", tmp_path / "half.parquet", "--accept-changes", "--json")
    taken = json.loads(run("relation", "verify", relation, *args).stdout)
    assert (taken["damaged"], taken["repaired"], taken["version"]) == (True, [0], 3)
    assert run("relation", "verify", relation).exit_code == 0
    assert run("relation", "verify", relation, "--accept-changes").exit_code == 2
