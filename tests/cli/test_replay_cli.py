"""``headrace replay``: what a query shed, joined and loaded from the shell."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from tests.support.delta_tables import by_deltalake, rows

pytestmark = pytest.mark.spark


def run(*args) -> object:
    return CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "120", "NO_COLOR": "1"})


def test_replay_loads_what_is_owed_and_says_so(spark, tmp_path):
    state, table = tmp_path / "st[a]te {1} %20", tmp_path / "table"
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": [i % 4 for i in range(40)]}), tmp_path / "in" / "0.parquet")
    with hr.Relation.create(tmp_path / "rel", pa.table({"k": [0, 1, 2], "v": ["a", "b", "c"]}), key="k") as rel:
        stream = spark.readStream.schema("k bigint").parquet(str(tmp_path / "in"))
        # Equal rows go the same way, so half of them is as near as it gets.
        shed = hr.Shedding(rate=10, target_delay=4, state=state)
        df = hr.enrich(stream, rel, "k", "left", shed=shed)
        hr.load(df, table, checkpoint=tmp_path / "c", trigger={"availableNow": True}).awaitTermination()
        before = sum(rows(by_deltalake(table), ["k", "v"]).values())
        assert 0 < before < 40
        result = run("replay", state, table, "--json")
        assert result.exit_code == 0, result.output
        said = json.loads(result.stdout)
        assert (said["rows"], said["results"], said["owed"], said["waiting"]) == (40 - before, 40 - before, 0, 0)
        assert rows(by_deltalake(table), ["k", "v"]) == {repr([k, v]): 10 for k, v in enumerate(["a", "b", "c", None])}
        assert "owed" in run("replay", state, table).stdout
        # A process of its own starts a Spark of its own: the answer is all that it says.
        command = [Path(sys.executable).with_name("headrace"), "replay", state, table, "--json", "--master", "local[1]"]
        alone = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert json.loads(alone.stdout)["rows"] == 0 and alone.stderr == ""


def test_a_state_without_shed_rows_is_refused(tmp_path):
    result = run("replay", tmp_path / "nowhere", tmp_path / "table")
    assert result.exit_code == 2 and "is not a directory" in result.output
    result = run("replay", tmp_path, tmp_path / "table")
    assert result.exit_code == 2 and "nothing was shed" in result.output
