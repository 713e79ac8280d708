"""``headrace calibrate`` and ``headrace tune`` on a real relation."""

import json
import shutil

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.cost import MACHINES, Facts
from headrace.cost.models import MODELS
from headrace.cost.tune import best_rates, draw, least_memories
from headrace.files.checked_json import dump_checked

ROWS = 20_000


def run(*args: object):
    return CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "160", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A calibration of this machine, as the command keeps and prints it: it takes seconds, so once for all."""
    where = tmp_path_factory.mktemp("calibrated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_STATE", str(where / "state"))
        shown = run("calibrate", "--directory", where, "--seconds", 0.3, "--json")
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout), where / "state" / "calibration.json"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def relation(tmp_path):
    rows = pa.table({"id": range(ROWS), **{f"c{i}": range(ROWS) for i in range(10)}})
    hr.Relation.create(tmp_path / "r.rel", rows, key="id")
    return tmp_path / "r.rel"


def test_calibrate_measures_and_keeps(tmp_path, state, measured):
    shown = run("calibrate", "--directory", tmp_path, "--seconds", 0.3)
    assert shown.exit_code == 0, shown.stderr
    for name in ("seek", "transfer", "follow", "c_E", "c_S", "c_A", "c_H", "c_O", "c_X"):
        assert name in shown.stdout
    assert json.loads((state / "calibration.json").read_text())["seek"] >= 0
    as_json, kept = measured
    assert as_json["file"] == str(kept)
    assert as_json["seek"] == json.loads(kept.read_text())["seek"]
    refused = run("calibrate", "--directory", tmp_path / "nowhere")
    assert refused.exit_code == 2
    assert "is not a directory" in refused.stderr


def test_tune_by_memory_shows_every_algorithm_and_the_one_to_choose(relation):
    shown = run("tune", relation, "--memory", "1MiB", "--skew", 0.8, "--machine", "hdd")
    assert shown.exit_code == 0, shown.stderr
    for name in MODELS:
        assert name in shown.stdout
    as_json = json.loads(run("tune", relation, "--memory", "1MiB", "--machine", "hdd", "--json").stdout)
    assert as_json["asked"] == "rate"
    assert as_json["given"] == 1 << 20
    rates = {p["algorithm"]: p["rate"] for p in as_json["predictions"]}
    assert set(rates) == set(MODELS)
    assert rates[as_json["recommended"]] >= 0.95 * max(rates.values())


def test_tune_by_rate_gives_the_least_memory(relation):
    found = json.loads(run("tune", relation, "--rate", 5000, "--machine", "hdd", "--json").stdout)
    least = {p["algorithm"]: p["memory"] for p in found["predictions"] if p["rate"]}
    assert found["recommended"] == min(least, key=least.__getitem__)
    for p in found["predictions"]:
        assert p["rate"] >= 5000 or (p["rate"] == 0 and p["why"])
    back = json.loads(run("tune", relation, "--memory", least["meshjoin"], "--machine", "hdd", "--json").stdout)
    assert next(p["rate"] for p in back["predictions"] if p["algorithm"] == "meshjoin") >= 5000


def test_tune_draws(relation, tmp_path):
    pytest.importorskip("matplotlib")
    shown = run("tune", relation, "--memory", "1MiB", "--machine", "ssd", "--plot", tmp_path / "curve.png")
    assert shown.exit_code == 0, shown.stderr
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert f"curves drawn in {tmp_path / 'curve.png'}" in shown.stdout.replace("\n", "")
    also = run("tune", relation, "--memory", "1m", "--machine", "ssd", "--plot", tmp_path / "also.png", "--json")
    assert json.loads(also.stdout)["recommended"]
    assert "curves drawn in" in also.stderr


@pytest.mark.parametrize(
    ("machine", "asked"),
    [
        ("hdd", {"memory": 40_000}),
        ("ssd", {"memory": 1 << 20}),
        ("hdd", {"memory": 1 << 28}),
        ("hdd", {"rate": 5_000}),
        ("ssd", {"rate": 1e9}),
    ],
)
def test_labels_of_a_plot_do_not_overlap(relation, machine, asked):
    pytest.importorskip("matplotlib")
    facts = Facts.of(hr.Relation.open(relation), machine=MACHINES[machine])
    answer = best_rates(facts, asked["memory"]) if "memory" in asked else least_memories(facts, asked["rate"])
    figure = draw(facts, answer)
    figure.draw_without_rendering()
    inside = figure.bbox
    texts = []
    for axes in figure.axes:
        if not axes.axison:
            texts += [text.get_window_extent() for text in axes.texts]
            continue
        texts += [
            axes.title.get_window_extent(),
            axes.xaxis.label.get_window_extent(),
            axes.yaxis.label.get_window_extent(),
        ]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            assert len(ticks) >= 2, "an axis whose scale nobody can read"
            texts += [tick.label1.get_window_extent() for tick in ticks]
            assert not axis.get_minorticklocs().size
        legend = axes.get_legend()
        if legend is not None:
            assert not legend.get_window_extent().overlaps(axes.get_window_extent()), "curves lie under it"
            texts += [text.get_window_extent() for text in legend.get_texts()]
    assert len(texts) >= 2
    for i, text in enumerate(texts):
        assert inside.x0 <= text.x0 and text.x1 <= inside.x1 and inside.y0 <= text.y0 and text.y1 <= inside.y1
        assert not any(text.overlaps(other) for other in texts[i + 1 :])


def test_tune_uses_the_calibration_and_says_when_there_is_none_or_a_bad_one(relation, state, measured):
    assert "no calibration" in run("tune", relation, "--memory", "1MiB").stderr
    state.mkdir(exist_ok=True)
    shutil.copy(measured[1], state / "calibration.json")
    good = run("tune", relation, "--memory", "1MiB")
    assert good.exit_code == 0
    assert good.stderr == ""
    file = state / "calibration.json"
    body = json.loads(file.read_text())
    body["machine"]["processor"] = "another"
    del body["checksum"]
    file.write_bytes(dump_checked(body))
    foreign = run("tune", relation, "--memory", "1MiB")
    assert foreign.exit_code == 0
    assert "is foreign" in foreign.stderr
    file.write_text("{")
    assert "is damaged" in run("tune", relation, "--memory", "1MiB").stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "give --rate"),
        (("--rate", 5, "--memory", "1MiB"), "one of them"),
        (("--memory", "much"), "--memory 'much' is not a size"),
        (("--rate", -1), "--rate -1.0"),
        (("--memory", "1MiB", "--skew", -2), "--skew -2.0"),
        (("--memory", "1MiB", "--machine", "abacus"), "--machine 'abacus' is not known; choose one of calibrated"),
        (("--memory", "1MiB", "--plot", "x.pdf"), "does not end in .png"),
    ],
)
def test_tune_refuses_with_one_line(relation, args, said):
    refused = run("tune", relation, *args)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


def test_tune_of_what_is_no_relation(tmp_path):
    refused = run("tune", tmp_path, "--memory", "1MiB", "--machine", "hdd")
    assert refused.exit_code == 2
    assert str(tmp_path) in refused.stderr.replace("\n", "")
