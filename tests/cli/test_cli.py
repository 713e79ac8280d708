"""The command line, as far as it needs no relation."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from typer.testing import CliRunner

import headrace
from headrace.cli import app
from headrace.cli.exit_codes import DAMAGED, FAILED, INTERRUPTED, REFUSED, message
from headrace.cli.screen import plain
from headrace.errors import BadInput, DamagedLog, DamagedRelation, MemoryRefused, innermost
from headrace.pipeline.run import RunFailed
from headrace.sources.connection import PostgreSQLError
from headrace.sources.secret import hide_secrets
from headrace.spark.session import SparkFailed


def run(*args: str):
    return CliRunner().invoke(app, args, env={"COLUMNS": "120", "NO_COLOR": "1"})


def test_version():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"headrace {headrace.__version__}\n")


def test_help_names_the_commands_and_a_first_step():
    result = run("--help")
    assert result.exit_code == 0
    assert "relation" in result.stdout
    assert "headrace relation create" in result.stdout


def test_relation_help_names_its_commands():
    result = run("relation", "--help")
    for command in ("create", "describe", "lookup", "verify"):
        assert command in result.stdout


@pytest.mark.parametrize("command", ["create", "describe", "lookup", "verify"])
def test_every_command_has_help_and_json(command):
    result = run("relation", command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout


def test_an_unknown_command_is_refused():
    assert run("relation", "destroy").exit_code == 2


def test_key_is_asked_for():
    result = run("relation", "create", "in.parquet", "out.rel")
    assert result.exit_code == 2
    assert "--key" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("[red]no[/red]\x1b[2J"), 2, "[red]no[/red]\\x1b[2J"),
        (MemoryRefused("index asked for 1MiB"), 2, "index asked for 1MiB"),
        (DamagedLog("x.arrow is damaged"), 2, "x.arrow is damaged"),
        (DamagedRelation("s0.pages", "checksum", shard=0, page=3), 1, "shard 0, page 3 of s0.pages: checksum"),
        (FileNotFoundError(2, "No such file", "x"), 3, "[Errno 2] No such file: 'x'"),
        (OSError(28, "No space left on device"), 3, "[Errno 28] No space left on device"),
        (pa.ArrowInvalid("not Parquet"), 3, "ArrowInvalid: not Parquet"),
        (PySparkRuntimeError("Java gateway process exited"), 3, "PySparkRuntimeError: Java gateway process exited"),
        (SparkFailed("Spark did not start"), 3, "Spark did not start"),
        (RunFailed("sales failed"), 3, "sales failed"),
        (PostgreSQLError("no answer"), 3, "no answer"),
        (ZeroDivisionError("division by zero"), 3, "ZeroDivisionError: division by zero"),
        (
            # As Spark wraps what a worker raised.
            PySparkRuntimeError(
                "Job aborted.\norg.apache.spark.SparkException: task 3\nTraceback (most recent call last):\n"
                "headrace.errors.DamagedRelation: shard 1, page 2 of s1.pages: checksum\n\tat java.base/X.java:1"
            ),
            1,
            "PySparkRuntimeError: shard 1, page 2 of s1.pages: checksum",
        ),
        (
            PySparkRuntimeError("Job aborted.\norg.apache.spark.SparkException: task 3\n\tat java.base/X.java:1\n"),
            3,
            "PySparkRuntimeError: org.apache.spark.SparkException: task 3",
        ),
        (KeyboardInterrupt(), 130, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_exception_of_every_command_is_a_line_and_a_code(error, code, said, monkeypatch):
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("headrace.relation.Relation.open", fail)
    monkeypatch.setattr("headrace.verify", fail)
    monkeypatch.setattr("headrace.runlog.log.find_logs", fail)
    for command in (
        ["relation", "describe", "x"],
        ["relation", "verify", "x"],
        ["tune", "x", "--rate", "1"],
        ["log", "x"],
    ):
        result = run(*command)
        assert result.exit_code == code, command
        assert result.stderr == ("" if said is None else f"headrace: {said}\n")


def test_a_foreign_exception_shows_no_secret(monkeypatch):
    text = "jdbc:postgresql://ann:hunter2@db/shop?user=ann&password=hunter2: refused; sasl.password='hunter2'"

    def fail(*args: object, **options: object) -> None:
        raise ConnectionError(text)

    monkeypatch.setattr("headrace.relation.Relation.open", fail)
    monkeypatch.setenv("HEADRACE_TRACEBACK", "1")
    result = run("relation", "describe", "x")
    assert result.exit_code == 3
    assert "hunter2" not in result.output
    assert "postgresql://ann:***@db/shop?user=ann&password=***" in result.stderr
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("part", ["_", "a", "a.", "1_", "ssl", "token "])
def test_secrets_are_found_in_long_texts_in_linear_time(part):
    """A message may quote a value of a megabyte; in quadratic time this would take hours."""
    found = hide_secrets(part * (1_000_000 // len(part)) + " postgresql://ann:hunter2@db sasl.password=hunter2")
    assert found.endswith(" postgresql://ann:***@db sasl.password=***")


def test_the_reason_of_a_failure_quotes_no_whole_value():
    text = f"at x\norg.apache.spark.SparkException: {'v' * 1_000_000}\n at y"
    assert len(innermost(text)) == 2000
    assert len(message(RuntimeError(text))) == len("RuntimeError: ") + 2000


def test_the_codes_are_those_of_the_documents():
    reference = Path("docs/reference/cli.md").read_text()
    for code in (DAMAGED, REFUSED, FAILED, INTERRUPTED):
        assert f"\n| {code} | " in reference


def test_control_characters_do_not_reach_the_terminal():
    assert plain("[red]é\x1b[2J\n\udc80") == "[red]é\\x1b[2J\\n\\udc80"
