"""Every example runs in an empty directory, says what it found, and leaves nothing there; each is short enough to be copied."""

import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import app

EXAMPLES = Path(__file__).parent.parent / "examples"
#: What an example prints: its lines, or what they begin with where the rest depends on the run.
SAYS = {
    "enrich_from_kafka": ["1,000 sales in the table, 200 of unknown products"],
    "pipeline": [
        "500 sales loaded, 47,081 in all",
        "put aside: {",
        """put aside: {"sale": 501, "product_id": 1, "quantity": "two"}: column 'quantity': found 'two', expected int""",
    ],
    "two_streams_by_distance": ["2,842 pairs of rider, x, y, taxi, x_right, y_right", "1,531 of 2,000 riders have"],
    "warehouse_with_surrogate_keys": [
        "product 1 of the warehouse: 5 sold",
        "product 2 of the warehouse: 5 sold",
        "product 3 of the warehouse: 5 sold",
        "4 names of products in the lookup",
    ],
    "without_spark": [
        "300,000 products in",
        "400,000 sales, 4,115 of unknown products, revenue 462,536,618.02",
        "served from memory: ",
        "memory: ",
    ],
}
LONGEST = 60  # lines


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATA", str(tmp_path))  # an example that sets it sets it for itself
    return tmp_path


def uses_spark(name):
    return "pyspark" in (EXAMPLES / f"{name}.py").read_text()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.spark) if uses_spark(name) else name for name in SAYS]
)
def test_an_example_says_what_it_found(name, here, monkeypatch, capsys, request):
    program = EXAMPLES / f"{name}.py"
    if uses_spark(name):
        request.getfixturevalue("spark")  # the session that all tests share: the example's getOrCreate finds it
    options = []
    if "kafka" in name:
        options = ["--servers", request.getfixturevalue("kafka").servers, "--topic", "examples-sales"]
    monkeypatch.setattr("sys.argv", [str(program), *options])
    runpy.run_path(str(program), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(SAYS[name])
    assert [line for line, begins in zip(said, SAYS[name], strict=True) if not line.startswith(begins)] == []
    assert list(here.iterdir()) == []


@pytest.mark.spark
def test_the_pipeline_file_can_be_checked_from_the_command_line(here, spark):
    make_data = runpy.run_path(str(EXAMPLES / "pipeline.py"))["make_data"]
    make_data(here)
    result = CliRunner().invoke(app, ["run", str(EXAMPLES / "pipeline.toml"), "--check"])
    assert result.exit_code == 0, result.output


def test_every_example_is_run_and_short():
    programs = sorted(EXAMPLES.glob("*.py"))
    assert [program.stem for program in programs] == sorted(SAYS)
    assert [program.name for program in programs if len(program.read_text().splitlines()) >= LONGEST] == []
