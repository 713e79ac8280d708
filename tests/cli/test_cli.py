"""The command line, as far as it needs no relation."""

import pytest
from typer.testing import CliRunner

import headrace
from headrace.cli import app
from headrace.cli.screen import clean_errors, plain
from headrace.errors import BadInput, DamagedRelation


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
    ("error", "code"),
    [
        (BadInput("[red]no[/red]\x1b[2J"), 2),
        (FileNotFoundError(2, "No such file", "x"), 2),
        (DamagedRelation("s0.pages", "checksum", shard=0, page=3), 1),
    ],
)
def test_errors_are_one_clean_line(error, code, capsys):
    import typer

    with pytest.raises(typer.Exit) as caught, clean_errors():
        raise error
    assert caught.value.exit_code == code
    assert capsys.readouterr().err == f"headrace: {plain(error)}\n"


def test_control_characters_do_not_reach_the_terminal():
    assert plain("[red]é\x1b[2J\n\udc80") == "[red]é\\x1b[2J\\n\\udc80"
