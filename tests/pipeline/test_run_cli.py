"""``headrace run`` as a user runs it."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.units import parse_duration
from tests.support.pipeline_place import SALES, joined, sale

PATIENCE = 300  # seconds: the machine may be busy


def headrace(*args: object):
    return CliRunner().invoke(app, ["run", *map(str, args)], env={"COLUMNS": "120", "NO_COLOR": "1"})


def test_check_says_whether_it_can_run_without_spark(place, monkeypatch):
    place.products().close()
    monkeypatch.setattr(importlib.import_module("headrace.cli.run"), "_session", None)  # not called
    result = headrace(place.file, "--check")
    assert (result.exit_code, result.stdout) == (0, f"{place.file}: it can run\n")
    assert json.loads(headrace(place.file, "--check", "--json").stdout) == {
        "file": str(place.file),
        "valid": True,
        "needs_spark": False,
    }
    assert not (place.root / "sales.state").exists()


def test_mistakes_are_lines_and_exit_code_2(place):
    place.write(SALES, ('"json"', '"jsn"'), ('"4MiB"', r'"\u001b[2J"'))
    result = headrace(place.file, "--check")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == [f"{place.file}:{n}" for n in (6, 15, 17)]
    assert "\x1b" not in result.stderr
    document = json.loads(headrace(place.file, "--check", "--json").stdout)
    assert [p["line"] for p in document["problems"]] == [6, 15, 17]  # there is no relation either


def test_the_plan_names_algorithm_and_memory_and_no_secret(place, monkeypatch):
    place.products().close()
    monkeypatch.setenv("WAREHOUSE", "hunter2-warehouse")
    monkeypatch.setenv("MEMORY", "4321KiB")
    place.write(SALES, ('"warehouse"', '"${WAREHOUSE}/sales"'), ('"4MiB"', '"${MEMORY}"'))
    for result in (headrace(place.file, "--explain"), headrace(place.file, "--explain", "--json")):
        assert result.exit_code == 0, result.output
        assert "adaptive" in result.stdout
        assert "50 rows" in result.stdout
        assert "table" in result.stdout
        assert "${WAREHOUSE}/sales" in result.stdout
        assert "hunter2" not in result.output
    assert json.loads(result.stdout)["steps"][0]["gives"]["price"] == "long"


@pytest.mark.spark
def test_rows_on_the_console_cannot_steer_the_terminal(place, spark):
    place.products().close()
    place.write(SALES, ('quantity = "int"', 'quantity = "string"'), ('"delta"\npath = "warehouse"', '"console"'))
    place.arrive("a.json", sale(1) | {"quantity": "\x1b[2J[red]boo[/red]"})
    result = headrace(place.file, "--once")
    assert result.exit_code == 0, result.output
    assert r"\x1b[2J[red]boo[/red]" in result.stdout
    assert "\x1b" not in result.output
    assert "done: sales: 1 rows in 1 micro-batches" in result.stdout


@pytest.mark.spark
def test_the_rate_of_a_run_is_of_all_its_rows_and_seconds(place, spark):
    place.products().close()
    place.write(SALES)
    for name in ("a.json", "b.json"):
        place.arrive(name, *(sale(i) for i in range(100)))
    found = json.loads(headrace(place.file, "--once", "--json").stdout)
    assert found["rows"] == 200
    assert found["rate"] == pytest.approx(200 / found["seconds"], rel=0.05)
    place.arrive("c.json", *(sale(i) for i in range(100)))
    text = headrace(place.file, "--once").stdout
    took, rate = re.search(r"100 rows in 1 micro-batches and (\S+) · ([\d,.]+)/s", text).groups()
    # The time is shown in three digits, and the rate in whole rows.
    assert float(rate.replace(",", "")) == pytest.approx(100 / parse_duration(took), rel=0.05, abs=0.5)


@pytest.mark.spark
def test_a_run_that_fails_says_why_and_has_exit_code_3(place, spark):
    place.products().close()
    place.write(SALES, ('"json"', '"parquet"'))
    (place.root / "incoming/a.parquet").write_bytes(b"nonsense that is not Parquet")
    result = headrace(place.file, "--once")
    assert result.exit_code == 3
    assert "sales failed: the file" in result.stderr
    document = json.loads(headrace(place.file, "--once", "--json").stdout)
    assert document["failed"]
    assert "a.parquet" in document["message"]


MIXED = """
name = "sales"
every = soon

[source]
format = "json"
path = "nowhere"

[source.columns]
sale = "long"
product_id = "long"
quantity = "int"

[[step]]
filter = "quantiy > 0"

[[step]]
select = ["sale +", "product_id", "prise AS p", "quantity"]

[[step]]
enrich = "prodcts.rel"
on = "product_id"

[[step]]
filter = "sale >"

[sink]
format = "delta"
path = "warehouse"
"""


@pytest.mark.spark
@pytest.mark.slow
def test_one_check_names_mistakes_of_spark_and_of_the_file_and_nothing_of_java(place, tmp_path):
    """A process of its own: only there is Spark started, and everything on its terminal seen."""
    place.write(MIXED)
    command = [sys.executable, "-c", "from headrace.cli import app; app()", "run", str(place.file), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines = [line.removeprefix(f"headrace: {place.file}:") for line in done.stderr.splitlines()]
    assert [line.split(":")[0] for line in lines] == ["3", "7", "15", "18", "18", "21", "25"], done.stderr
    for line, words in zip(
        lines, ["not TOML", "'nowhere'", "`quantiy`", "", "`prise`", "no relation", "filter: "], strict=True
    ):
        assert words in line
    assert sorted(path.name for path in place.root.iterdir()) == ["incoming", "sales.toml"]


@pytest.mark.spark
def test_a_relation_damaged_under_a_run_has_exit_code_1(place, spark):
    place.products().close()
    place.arrive("a.json", sale(1))
    for pages in (place.root / "products.rel").rglob("*.pages"):
        content = bytearray(pages.read_bytes())
        content[100:200] = bytes(100)
        pages.write_bytes(content)
    result = headrace(place.file, "--once")
    assert result.exit_code == 1, result.output
    assert "sales failed: a relation is damaged: " in result.stderr
    assert len(result.stderr.splitlines()[-1]) < 1000


@pytest.mark.spark
def test_what_spark_throws_at_the_start_is_one_line_without_secrets(place, spark, monkeypatch):
    place.products().close()
    monkeypatch.setenv("LOGIN", "hunter2-of-ann")
    place.write(SALES, ('"delta"\npath = "warehouse"', '"spark"\nwriter = "${LOGIN}"'))
    result = headrace(place.file, "--check")
    assert result.exit_code == 2
    sink = '"spark"\nwriter = "nosuchsink"\noptions = { url = "jdbc:x://ann:hunter3@h", password = "${LOGIN}" }'
    place.write(SALES, ('"delta"\npath = "warehouse"', sink))
    result = headrace(place.file, "--once")
    assert result.exit_code in (2, 3), result.output
    assert "nosuchsink" in result.stderr
    assert "hunter" not in result.output
    assert "\tat " not in result.output and len(result.stderr.strip().splitlines()) == 1


@contextmanager
def running(place):
    """`headrace run` as a process of its own, with a Spark of its own; ended in the end, its JVM with it."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from headrace.cli import app; app()", "run", str(place.file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=place.root.parent,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(process, ready):
    limit = time.monotonic() + PATIENCE
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit, "what was waited for did not come"
        time.sleep(0.01)


@pytest.fixture
def many(place):
    """Forty files, a micro-batch each, with a good record and a bad one; and where Spark notes what is done."""
    place.products().close()
    place.write(SALES, ('path = "incoming"', 'path = "incoming"\nfiles_per_batch = 1'))
    for i in range(40):
        place.arrive(f"{i:03d}.json", sale(i), f"{{ {i}")
    return lambda: len(list((place.root / "sales.state/checkpoint/commits").glob("[0-9]*")))


def whole(place, spark) -> None:
    """Another run ends with every good record once, and every bad one."""
    place.write(SALES)
    assert not place.run(spark).stopped
    assert place.loaded() == sorted((joined(sale(i)) for i in range(40)), key=str)
    assert sorted(row["record"] for row in place.dead()) == sorted(f"{{ {i}" for i in range(40))


@pytest.mark.spark
@pytest.mark.slow
def test_sigterm_finishes_the_micro_batch_and_another_run_goes_on(place, many, spark):
    with running(place) as process:
        wait_for(process, lambda: many() >= 2)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "stopped: sales: " in out
    assert "waiting for rows" in err
    done = many()
    assert 2 <= len(place.dead()) == done < 40
    # Spark may have begun the next one at that moment: then the table can have it before Spark's notes do.
    assert done <= len(place.loaded()) <= done + 1
    whole(place, spark)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "signs",  # that its dead letters are there, or that its rows are in the table: neither is noted as done yet
    ["sales.state/dead-letters/batch=*/part-*", pytest.param("warehouse/_delta_log/*.json", marks=pytest.mark.soak)],
    ids=["dead letters", "rows"],
)
def test_killed_in_the_midst_of_a_micro_batch_another_run_goes_on(place, many, spark, signs):
    with running(place) as process:
        wait_for(process, lambda: many() >= 2)
        now = set(place.root.glob(signs))
        wait_for(process, lambda: set(place.root.glob(signs)) - now)
        os.killpg(process.pid, signal.SIGKILL)
    assert 2 <= many() < 40
    whole(place, spark)
