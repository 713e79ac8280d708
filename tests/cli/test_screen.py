"""Rows on terminals of several widths, and values that are too long for them."""

import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.cli.screen import shorten


def lookup(relation, *args, columns):
    found = CliRunner().invoke(
        app, ["relation", "lookup", str(relation), *args], env={"COLUMNS": str(columns), "NO_COLOR": "1"}
    )
    assert found.exit_code == 0, found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def relation(tmp_path_factory):
    where = tmp_path_factory.mktemp("wide") / "r.rel"
    columns = {f"a_column_{i}": [f"value {i} of {k}" for k in range(3)] for i in range(9)}
    texts = {"text": ["é" * 1_000, None, "short"], "empty": ["", "", ""]}
    hr.Relation.create(where, pa.table({"id": range(3), **columns, **texts}), key="id").close()
    return where


def test_many_columns_are_a_list_where_they_do_not_fit_and_a_table_where_they_do(relation):
    narrow = lookup(relation, "1", "2", columns=80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "row 1 of 2" in narrow and "row 2 of 2" in narrow
    lines = {line.split("  ", 1)[0].rstrip(): line.split("  ", 1)[-1].strip() for line in narrow.splitlines()[1:13]}
    assert lines["id"] == "1"
    assert lines["a_column_8"] == "value 8 of 1"
    assert lines["text"] == "null"
    wide = lookup(relation, "1", "2", columns=220)
    assert "row 1 of 2" not in wide
    assert wide.count("a_column_") == 9
    assert len(wide.splitlines()) == 6


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_long_values_are_shortened_and_json_has_them_whole(relation, columns):
    shown = lookup(relation, "0", columns=columns)
    assert max(map(len, shown.splitlines())) <= columns
    assert "… (1,000 characters)" in shown
    assert json.loads(lookup(relation, "0", "--json", columns=columns))[0]["text"] == "é" * 1_000


def test_wide_characters_count_twice():
    assert shorten("界" * 30, 40) == "界" * 11 + "… (30 characters)"
    assert shorten("界" * 20, 40) == "界" * 20
