"""`hr.sql(spark, …)`: the results of the embedded query over the same pulls, each once, over restarts and replays."""

import json

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.errors import BadInput
from tests.support.batch_sink import Sink
from tests.support.feed_queries import document
from tests.support.feed_recordings import item, recording
from tests.support.recorded_queries import (
    ALERTS,
    BOXES,
    FEEDS,
    GROUPED_PAIRS,
    GROUPS,
    NEAR,
    ONE,
    PLACES,
    QUAKES,
    THREE,
    embedded,
)
from tests.support.spark_streams import counted, finished, last_again, streamed

pytestmark = pytest.mark.spark

SMALL = {"memory": "6MiB", "shards": 2, "partitions": 4, "workers": 2}


@pytest.mark.parametrize(("text", "least"), [(NEAR, 3), (BOXES, 1), (ONE, 4)], ids=["near", "boxes", "one"])
def test_differential_results_are_the_embedded_ones(spark, tmp_path, text, least):
    directory = recording(tmp_path / "recorded", FEEDS)
    out = hr.sql(spark, text, recorded=directory, state=tmp_path / "state", **SMALL)
    found = streamed(out, checkpointLocation=str(tmp_path / "checkpoint"))
    assert out.isStreaming and out.columns[-2:] == ["_id", "_places"]
    wanted = embedded(text, tmp_path / "state" / "feeds")
    assert wanted.total() >= least
    assert counted(found) == wanted


@pytest.mark.parametrize(
    ("text", "least"), [(THREE, 3), (GROUPS, 1), (GROUPED_PAIRS, 0)], ids=["three", "groups", "grouped pairs"]
)
def test_differential_each_result_once_with_a_restart_between_pulls_and_a_replay(spark, tmp_path, text, least):
    directory = recording(tmp_path / "recorded", {url: pulls[:2] for url, pulls in FEEDS.items()})
    sink, state, checkpoint = Sink(), tmp_path / "state", tmp_path / "checkpoint"

    def run():
        out = hr.sql(spark, text, recorded=directory, state=state, max_pulls=2, **SMALL)
        finished(sink.run(out, checkpoint))

    run()
    wanted = embedded(text, state / "feeds")
    assert wanted.total() >= least
    assert sink.rows == wanted
    again = last_again(checkpoint)
    recording(directory, {url: pulls[2:] for url, pulls in FEEDS.items()})
    recording(directory, {PLACES: [(60, [item("p5", "Anchorage", 61.0, -150.0)])]})
    run()
    attempts = sink.sent[again]
    assert len(attempts) == 2 and attempts[0] == attempts[1]
    more = embedded(text, state / "feeds")
    assert more.total() > wanted.total()
    assert sink.rows == more


def test_what_is_refused_when_it_is_asked_for(spark, tmp_path):
    feed = f"FROM rss('{QUAKES}') q"
    for text, message in (
        (f"SELECT q.titel {feed}", "titel"),
        (f"SELECT q.title {feed} ORDER BY 1", "ORDER BY"),
        (f"SELECT count(*) {feed} GROUP BY q.title", "GROUP BY without a window"),
        (f"EXPLAIN SELECT q.title {feed}", "EXPLAIN"),
        (f"SELECT q.title {feed}, rss('{ALERTS}') a", "nothing connects a with q"),
    ):
        with pytest.raises(BadInput, match=message):
            hr.sql(spark, text, state=tmp_path)
    with pytest.raises(BadInput, match="give state=DIRECTORY"):
        hr.sql(spark, NEAR)
    shown = CliRunner().invoke(app, ["sql", GROUPS, "--once", "--spark"])
    assert shown.exit_code == 2 and "give --state DIRECTORY" in shown.output


def test_differential_the_command_line_on_spark_gives_what_it_gives_without(spark, tmp_path):
    feeds = {QUAKES: tmp_path / "quakes.xml", PLACES: tmp_path / "places.xml"}
    text = NEAR
    for url, path in feeds.items():
        path.write_bytes(document(*FEEDS[url][0][1]))
        text = text.replace(url, path.as_uri())

    def results(*options):
        given = [
            "sql",
            text,
            "--once",
            "--json",
            "--allow-files",
            "--state",
            str(tmp_path / options[-1]),
            *options[:-1],
        ]
        shown = CliRunner().invoke(app, given)
        assert shown.exit_code == 0, shown.output
        rows = [json.loads(line) for line in shown.output.splitlines()]
        own = ("_number", "_produced")  # a desk counts its results
        return sorted(repr({name: value for name, value in row.items() if name not in own}) for row in rows)

    here = results("here")
    assert here and results("--spark", "there") == here
    assert results("--spark", "there") == []  # each result once, though the query is run again
