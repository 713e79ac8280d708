"""headrace bench service-rate."""

import json

import pytest
from typer.testing import CliRunner

from headrace.bench import RelationSpec, make_relation
from headrace.cli import app

CELLS = ["--algorithms", "meshjoin,inl", "--memory", "10%", "--loops", "1"]


def invoke(*arguments):
    return CliRunner().invoke(app, ["bench", "service-rate", *arguments])


def test_rates_as_json(tmp_path):
    relation = make_relation(tmp_path, RelationSpec(20_000))
    done = invoke(str(relation.path), *CELLS, "--skew", "0,1", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["relation"]["rows"] == 20_000 and found["disk"] == "hdd"
    cells = {(cell["algorithm"], cell["skew"]): cell for cell in found["rates"]}
    assert set(cells) == {("meshjoin", 0.0), ("meshjoin", 1.0), ("inl", 0.0), ("inl", 1.0)}
    for skew in (0.0, 1.0):
        assert cells["meshjoin", skew]["rate"] > cells["inl", skew]["rate"] > 0
    assert cells["inl", 1.0]["rate"] > cells["inl", 0.0]["rate"]


def test_a_table_with_refusals():
    done = invoke("--rows", "5000", "--algorithms", "meshjoin", "--memory", "8KiB,400KiB", "--loops", "1")
    assert done.exit_code == 0, done.output
    assert "400KiB" in done.stdout and "tuples/s" in done.stdout and "small" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a RELATION"),
        (["--rows", "1000", "--algorithms", "bubble"], "--algorithms 'bubble'"),
        (["--rows", "1000", "--disk", "tape"], "--disk 'tape'"),
        (["--rows", "1000", "--memory", "x%"], "'x' is not a number"),
        (["--rows", "1000", "--method", "no", *CELLS], "--method 'no'"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, message):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
