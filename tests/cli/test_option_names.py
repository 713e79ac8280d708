"""Errors of the command line are in its own words: options as they are typed, never arguments of the library."""

import re

import pyarrow as pa
import pyarrow.parquet
import pytest
import typer
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.cli.option_names import OptionNamesCommand, in_options

FEED = "SELECT a.title FROM rss('http://example.org/a.xml') a"


def run(*args: object):
    return CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "120", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("options")
    hr.Relation.create(place / "r.rel", pa.table({"id": range(2_000), "v": range(2_000)}), key="id").close()
    pa.parquet.write_table(pa.table({"id": [1, 2], "v": [1, 2]}), place / "in.parquet")
    return place


CREATE = ("relation", "create", "{}/in.parquet", "{}/new.rel", "--key", "id")
TUNE = ("tune", "{}/r.rel", "--machine", "hdd", "--memory", "1m")
BENCH = ("bench", "service-rate", "{}/r.rel")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((*CREATE, "--memory", "lots"), "--memory 'lots' is not a size; give '64MiB'"),
        ((*CREATE, "--memory", "0"), "--memory '0' must be at least 1 byte"),
        ((*CREATE, "--page-size", "lots"), "--page-size 'lots' is not a size"),
        ((*CREATE, "--page-size", "5k"), "--page-size '5k' is not a multiple of 4KiB"),
        ((*CREATE, "--fill", "7"), "--fill 7.0 is not a share of a page"),
        ((*CREATE, "--shards", "two"), "--shards 'two' cannot be taken"),
        ((*CREATE, "--key", "nope"), "--key names 'nope', which the data does not have"),
        ((*CREATE, "--key", "id"), "--key ['id', 'id'] names a column twice"),
        ((*CREATE, "--order", "size"), "--order 'size' is not supported; choose one of key, frequency"),
        ((*CREATE, "--order", "frequency"), "--order 'frequency' needs --frequencies"),
        ((*CREATE, "--frequencies", "{}/in.parquet"), "--frequencies is given and --order key does not use it"),
        ((*CREATE, "--frequencies", "none.pq"), "--frequencies 'none.pq' is not there"),
        (("relation", "create", "{}/in.parquet", "{}/r.rel", "--key", "id"), "pass --overwrite to replace it"),
        (("relation", "create", "{}/in.parquet", "{}/new.rel"), "missing option '--key'"),
        (("relation", "describe", "{}/none.rel"), "create one with headrace relation create"),
        (("relation", "compact", "{}/r.rel", "--memory", "lots"), "--memory 'lots' is not a size"),
        (("relation", "compact", "{}/r.rel", "--order", "size"), "--order 'size' is not supported"),
        (("relation", "compact", "{}/r.rel", "--frequencies", "{}/in.parquet"), "pass --order frequency"),
        (("relation", "craete"), "Did you mean 'create'?"),
        (("relatoin",), "Did you mean 'relation'"),
        (("--bogus",), "no such option: --bogus; see headrace --help"),
        (("tune", "{}/r.rel", "--memory", "lots"), "--memory 'lots' is not a size"),
        (("tune", "{}/r.rel", "--machine", "hdd", "--rate", "-1"), "--rate -1.0 is not a number of tuples a second"),
        (("tune", "{}/r.rel", "--rate", "fast"), "--rate 'fast' cannot be taken"),
        ((*TUNE, "--skew", "-2"), "--skew -2.0 is not the exponent"),
        ((*TUNE, "--stream-bytes", "-1"), "--stream-bytes -1.0 is not the size of a tuple"),
        ((*TUNE, "--absent", "2"), "--absent 2.0 is not a share of the stream"),
        ((*TUNE, "--batch-rows", "0"), "--batch-rows 0 is not a number of tuples; give 1 or more, or leave it out"),
        ((*TUNE, "--machine", "abacus"), "--machine 'abacus' is not known"),
        ((*TUNE, "--plot", "x.pdf"), "--plot 'x.pdf' does not end in .png"),
        ((*TUNE, "--plot", "/nowhere/x.png"), "--plot '/nowhere/x.png' is in no directory"),
        (("calibrate", "--directory", "{}/none"), "is not a directory"),
        (("calibrate", "--seconds", "0"), "--seconds 0.0 is not a time to measure for"),
        ((*BENCH, "--memory", "lots"), "--memory 'lots' is not a size"),
        ((*BENCH, "--memory", "x%"), "--memory 'x' is not a number"),
        ((*BENCH, "--skew", "x"), "--skew 'x' is not a number"),
        ((*BENCH, "--algorithms", "bubble"), "--algorithms 'bubble' is not supported"),
        ((*BENCH, "--disk", "tape"), "--disk 'tape' is not supported"),
        ((*BENCH, "--method", "guess"), "--method 'guess' is not supported"),
        ((*BENCH, "--order", "size"), "--order 'size' is not supported"),
        (("demo", "--memory", "lots"), "--memory 'lots' is not a size"),
        (("demo", "--rate", "0"), "--rate 0 is out of range"),
        (("demo", "--cores", "0"), "--cores 0 is too few"),
        (("replay", "{}/none", "{}/table"), "is not a directory; give the state directory of the query that shed"),
        (("log", "{}/none"), "give the state directory of a query"),
        (("sql", FEED, "--memory", "lots"), "--memory 'lots' is not a size"),
        (("sql", FEED, "--within", "soon"), "--within 'soon' is not a duration"),
        (("sql", FEED, "--interval", "-1"), "--interval -1.0 is not a time"),
        (("feeds", "add", "http://x.org/a", "--state", "{}/s", "--interval", "soon"), "--interval 'soon' is not a"),
        (("feeds", "add", "nothing", "--state", "{}/s"), "URL 'nothing' is not pulled"),
        (("feeds", "test", "file:///x.xml"), "files are read with --allow-files\n"),
        (("console", "--state", "{}/s", "--memory", "lots"), "--memory 'lots' is not a size"),
        (("console", "--state", "{}/s", "--interval", "soon"), "--interval 'soon' is not a duration"),
        (("console", "--demo", "--minutes", "0"), "--minutes 0 is no time"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line_that_names_its_option(place, command, said):
    refused = run(*(part.format(place) for part in command))
    assert refused.exit_code == 2
    assert refused.stderr.startswith("headrace: ") and refused.stderr.count("\n") == 1
    assert said in refused.stderr
    assert not re.search(r"\b[a-z_]+=['\d]", refused.stderr), "an argument of the library"
    assert not (place / "new.rel").exists()


@pytest.mark.parametrize("size", ["64m", "1g", "64M", "64 MiB", "1GB"])
def test_sizes_are_taken_as_people_write_them(place, size):
    found = run("tune", place / "r.rel", "--machine", "ssd", "--memory", size, "--json")
    assert found.exit_code == 0, found.stderr


def commands(group):
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from commands(command)
        else:
            yield command


def test_every_command_speaks_of_its_options():
    found = list(commands(typer.main.get_command(app)))
    assert len(found) > 15
    for command in found:
        assert isinstance(command, OptionNamesCommand), command.name


def test_only_arguments_of_the_command_are_replaced():
    names = {"memory": "--memory", "on": "--on", "page_size": "--page-size"}
    assert (
        in_options("memory=5 is small; rel.memory=7, 'on=x' stay", names)
        == "--memory 5 is small; rel.memory=7, 'on=x' stay"
    )
    assert in_options("the row with key id=3 is long; give page_size='64 KiB'", names) == (
        "the row with key id=3 is long; give --page-size '64 KiB'"
    )


@pytest.mark.parametrize(
    ("words", "last", "expected"),
    [("headrace rela", 1, "relation"), ("headrace relation com", 2, "compact"), ("headrace tune --mem", 2, "--memory")],
)
def test_shells_complete_commands_and_options(words, last, expected):
    environment = {"_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(last)}
    completed = CliRunner().invoke(app, [], env=environment, prog_name="headrace")
    assert completed.stdout.split() == [expected]


@pytest.mark.parametrize("command", [[], ["relation"], ["relation", "create"], ["tune"], ["run"], ["sql"]])
def test_help_fits_eighty_columns_and_has_examples(command):
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "…" not in shown.stdout.replace("SELECT…", "")
    assert command == ["relation"] or shown.stdout.count("headrace ") > 1
