"""``headrace relation apply``, ``compact`` and ``list`` on real relations."""

import json
import shutil

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app

ROWS = 5_000


def run(*args: object, columns: int = 120):
    return CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": str(columns), "NO_COLOR": "1"})


@pytest.fixture
def relation(ram_path):
    rows = pa.table(
        {"id": range(ROWS), "name": [f"name {i}" for i in range(ROWS)], "price": [i / 4 for i in range(ROWS)]}
    )
    hr.Relation.create(ram_path / "r.rel", rows, key="id").close()
    return ram_path / "r.rel"


def rows_of(relation, keys):
    with hr.Relation.open(relation) as opened:
        return opened.lookup(keys).to_pylist()


def test_apply_says_the_version_what_became_of_rows_and_the_pages(relation, ram_path):
    pq.write_table(pa.table({"id": [1, ROWS], "name": ["one", "new"], "price": [1.0, None]}), ram_path / "up.parquet")
    pq.write_table(pa.table({"id": [2, 3, 10**9], "reason": ["a", "b", "c"]}), ram_path / "gone.parquet")
    args = ("relation", "apply", relation, "--upserts", ram_path / "up.parquet", "--deletes", ram_path / "gone.parquet")
    found = json.loads(run(*args, "--json").stdout)
    assert found["version"] == 2
    assert (found["upserted"], found["replaced"], found["deleted"], found["unchanged"]) == (2, 1, 2, ROWS - 3)
    assert found["rows"] == ROWS - 1
    assert 0 < found["pages_written"] < found["pages"]
    assert rows_of(relation, [1, 2, ROWS]) == [
        {"id": 1, "name": "one", "price": 1.0},
        {"id": ROWS, "name": "new", "price": None},
    ]
    again = run(*args)
    assert again.exit_code == 0, again.stderr
    assert f"version 3: 2 rows upserted, 0 deleted, {ROWS - 3:,} unchanged" in again.stdout


def test_apply_takes_csv_with_the_types_of_the_relation_and_keys_as_typed(relation, ram_path):
    (ram_path / "up.csv").write_text('name,id,price\n"0012",7,\nx,8,2\n')  # 0012 stays a text, 2 becomes a float
    done = run("relation", "apply", relation, "--upserts", ram_path / "up.csv", "--deletes", 9, "--deletes", 10)
    assert done.exit_code == 0, done.stderr
    assert rows_of(relation, [7, 8, 9, 10]) == [
        {"id": 7, "name": "0012", "price": None},
        {"id": 8, "name": "x", "price": 2.0},
    ]
    (ram_path / "gone.csv").write_text("id\n7\n8\n")
    assert "2 deleted" in run("relation", "apply", relation, "--deletes", ram_path / "gone.csv").stdout


def test_changes_leave_no_version_that_nobody_reads(relation):
    for expected in ([1], [2]):
        found = json.loads(run("relation", "apply", relation, "--deletes", 5, "--json").stdout)
        assert found["versions_removed"] == expected
    with hr.Relation.open(relation) as reader:
        assert json.loads(run("relation", "apply", relation, "--deletes", 6, "--json").stdout)["versions_removed"] == []
        assert reader.lookup([6]).num_rows == 1
    assert json.loads(run("relation", "compact", relation, "--json").stdout)["versions_removed"] == [3, 4]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "give --upserts FILE"),
        (("--upserts", "none.parquet"), "--upserts 'none.parquet' is not there"),
        (("--deletes", "none.csv"), "--deletes 'none.csv' is not there"),
        (("--upserts", "{}/text.parquet"), "cannot be read as Parquet"),
        (("--upserts", "{}/words.csv"), "does not fit int64, the relation's type: invalid value 'x'"),
        (("--upserts", "{}/few.csv"), "--upserts has no column 'price'; expected id, name, price"),
        (("--upserts", "{}/null.csv"), "--upserts holds a null in key column(s) id"),
        (("--deletes", "{}/other.csv"), "has no column 'id'; it has shop"),
        (("--deletes", "seven"), "key 'seven' is not a value of column id (int64"),
        (("--upserts", "{}/good.csv", "--deletes", "7"), "key 7 is in upserts and in deletes"),
    ],
)
def test_apply_refuses_in_one_line_and_changes_nothing(relation, ram_path, args, said):
    for name, text in {
        "text.parquet": "no",
        "words.csv": "id,name,price\nx,y,1\n",
        "few.csv": "id,name\n1,y\n",
        "null.csv": "id,name,price\n,y,1\n",
        "other.csv": "shop\n1\n",
        "good.csv": "id,name,price\n7,y,1\n",
    }.items():
        (ram_path / name).write_text(text)
    refused = run("relation", "apply", relation, *(a.format(ram_path) for a in args))
    assert refused.exit_code == 2
    assert refused.stderr.startswith("headrace: ") and refused.stderr.count("\n") == 1
    assert said in refused.stderr
    with hr.Relation.open(relation) as opened:
        assert (opened.version, opened.num_rows) == (1, ROWS)


def test_compact_shows_before_and_after(relation, ram_path):
    # The pages of the first half are written anew; the old ones stay in a file that still has the others.
    pq.write_table(pa.table({"id": range(0, ROWS // 2, 2)}), ram_path / "gone.parquet")
    assert run("relation", "apply", relation, "--deletes", ram_path / "gone.parquet").exit_code == 0
    before = json.loads(run("relation", "describe", relation, "--json").stdout)
    found = json.loads(run("relation", "compact", relation, "--json").stdout)
    after = json.loads(run("relation", "describe", relation, "--json").stdout)
    for name in ("pages", "bytes", "fill"):
        assert (found["before"][name], found["after"][name]) == (before[name], after[name])
    assert found["after"]["bytes"] < 0.9 * found["before"]["bytes"]
    assert found["after"]["disk_bytes"] == sum(f.stat().st_size for f in relation.iterdir() if f.is_file())
    assert (found["version"], found["versions_removed"]) == (3, [2])
    shown = run("relation", "compact", relation)
    assert shown.exit_code == 0, shown.stderr
    assert "before" in shown.stdout and "after" in shown.stdout
    assert "version 4; 1 older removed" in shown.stdout
    assert run("relation", "verify", relation).exit_code == 0


def test_compact_by_frequency(relation, ram_path):
    refused = run("relation", "compact", relation, "--order", "frequency")
    assert refused.exit_code == 2
    assert "give --frequencies FILE" in refused.stderr
    pyarrow.csv.write_csv(pa.table({"id": [77, 5], "frequency": [100, 9]}), ram_path / "popular.csv")
    done = run("relation", "compact", relation, "--order", "frequency", "--frequencies", ram_path / "popular.csv")
    assert done.exit_code == 0, done.stderr
    assert json.loads(run("relation", "describe", relation, "--json").stdout)["order"] == "frequency"


def test_list_finds_relations_at_any_depth_and_nothing_else(relation, ram_path):
    (ram_path / "deep" / "er").mkdir(parents=True)
    table = pa.table({"a": [1, 1], "b": ["x", "y"]})
    hr.Relation.create(ram_path / "deep" / "er" / "p.rel", table, key=["a", "b"]).close()
    shutil.copytree(relation, ram_path / "deep" / "half.rel.unfinished-1-x")  # as a create that was killed leaves it
    (ram_path / "deep" / "notes").mkdir()
    found = json.loads(run("relation", "list", ram_path, "--json").stdout)
    assert [(f["path"], f["rows"], f["version"], f["key"]) for f in found] == [
        (str(ram_path / "deep" / "er" / "p.rel"), 2, 1, ["a", "b"]),
        (str(relation), ROWS, 1, ["id"]),
    ]
    for facts in found:
        described = json.loads(run("relation", "describe", facts["path"], "--json").stdout)
        assert (facts["bytes"], facts["changed"]) == (described["bytes"], described["created"])
        assert facts["disk_bytes"] > facts["bytes"]
    shown = run("relation", "list", ram_path, columns=80).stdout
    assert "deep/er/p.rel" in shown and "a, b" in shown and f"{ROWS:,}" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_list_says_what_is_damaged_and_shows_the_rest(relation, ram_path):
    hr.Relation.create(ram_path / "a.rel", pa.table({"id": [1]}), key="id").close()
    (ram_path / "a.rel" / "manifest-000001.json").write_text("{")
    found = run("relation", "list", ram_path)
    assert found.exit_code == 1
    assert "damaged" in found.stdout and f"{ROWS:,}" in found.stdout
    assert "manifest-000001.json" in found.stderr
    assert [f["damaged"] for f in json.loads(run("relation", "list", ram_path, "--json").stdout)] == [True, False]


def test_list_of_nothing(ram_path):
    (ram_path / "empty").mkdir()
    assert "there are no relations below" in run("relation", "list", ram_path / "empty").stdout
    assert run("relation", "list", ram_path / "nowhere").exit_code == 2
