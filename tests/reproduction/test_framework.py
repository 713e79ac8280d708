"""A figure from cells to page in seconds; and checks of shapes that fail when they should."""

from dataclasses import replace

import pytest

import reproduction
from headrace.bench import RelationSpec, Zipf
from reproduction.checks import About, AtLeast, AtMost, Faster, GainsMore, Knee, Level, Peak, Tracks, Trend
from reproduction.cli import main
from reproduction.figure import Computed, Figure, Measured, Paper, Predicted
from reproduction.page import write_page
from reproduction.run import curves_of, load, measure, scale_of, verdicts_of

MADE = RelationSpec(20_000)


def tiny_cells(scale):
    memories = [int(m * scale) for m in (20_000, 300_000, 600_000)]
    stream = Zipf(MADE.rows, 0.5)
    return [
        *(Measured("measured", m, MADE, stream, m, "meshjoin") for m in memories),
        *(Predicted("predicted", m, MADE, m, skew=0.5) for m in memories[1:]),
        Computed("half", 300_000, lambda directory: {"rate": 5_000.0}),
    ]


def tiny(expected=()):
    figure = Figure(
        "1",
        "Rate against memory",
        "memory (bytes)",
        tiny_cells,
        reports="It rises.",
        expected=expected,
        differs="It is small.",
    )
    return Paper(
        name="tiny", title="A tiny paper", setting="In a\n test.\n \n Of two parts.", figures=(figure,)
    ), figure


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    paper, figure = tiny()
    where = tmp_path_factory.mktemp("raw")
    lines = []
    found = measure(paper, figure, 1.0, where / "relations", lines.append, where)
    assert len(lines) == len(found["cells"]) == 6 and "6/6" in lines[-1]
    assert load(paper, figure, where) == found
    assert load(replace(paper, chapter="2"), figure, where) is None
    return found


def test_raw_results_have_what_was_seen(raw):
    refused, first, second = raw["cells"][:3]
    assert "small" in refused["refused"] and "rate" not in refused
    assert "MeshJoin with r20000-" in refused["refused"]  # and no directory of this machine
    assert second["rate"] > first["rate"] > 0
    assert first["pages_read"] == 308 and first["memory_peak"] <= 300_000


VALUES = [
    {"rate": 1 / 3, "parts": {"H": 5}, "why": 'it, "rises"', "settled": True},
    {"rate": 2, "streams": [0.1 + 0.2, 1.0]},
    {"rate": float("inf")},
]


def found_in_csv(directory, alone):
    cells = [Computed("a, b", x, lambda directory, found=found: found) for x, found in enumerate(VALUES)]
    figure = replace(tiny()[1], cells=lambda scale: cells, alone=alone)
    found = measure(tiny()[0], figure, 0.5, directory, lambda line: None, directory)
    return found, (directory / "data" / "tiny-1.csv").read_bytes()


def test_raw_results_are_kept_as_csv_and_are_the_same_every_time(tmp_path):
    found, kept = found_in_csv(tmp_path, alone=False)
    assert found == {
        "scale": 0.5,
        "cells": [
            {"series": "a, b", "x": 0, "rate": 0.3333333333, "parts.H": 5, "why": 'it, "rises"', "settled": True},
            {"series": "a, b", "x": 1, "rate": 2, "streams": [0.3, 1.0]},
            {"series": "a, b", "x": 2, "rate": float("inf")},
        ],
    }
    assert found_in_csv(tmp_path / "again", alone=False) == (found, kept)
    assert b"date" not in kept
    assert found_in_csv(tmp_path / "alone", alone=True)[0].keys() == {"scale", "cells", "date", "cores", "load"}


def test_what_was_refused_is_on_no_curve(raw):
    curves = curves_of(tiny()[1], raw)
    assert [x for x, _ in curves["measured"]] == [300_000, 600_000]
    assert curves["half"] == [(300_000, 5_000.0)]


def test_a_page_has_plot_table_and_verdicts(raw, tmp_path):
    expected = (Tracks("predicted", "measured", 0.1), Trend("measured", 1.1), About("half", 300_000, 9_999, 0.1))
    paper, _ = tiny(expected)
    page = write_page(paper, {"1": raw}, tmp_path)
    text = page.read_text()
    assert (tmp_path / "tiny-1.png").stat().st_size < 60_000
    assert "![Rate against memory](tiny-1.png)" in text
    assert "too little memory" in text and "5,000" in text
    assert "\n\nIn a test.\n\nOf two parts.\n\n" in text and "([tiny-1.csv](data/tiny-1.csv))" in text
    assert "| 1 | Rate against memory | 1 | 2 of 3 |" in text
    assert text.count("**does not hold**") == 1
    before = page.read_bytes(), (tmp_path / "tiny-1.png").read_bytes()
    write_page(paper, {"1": raw}, tmp_path)
    assert before == (page.read_bytes(), (tmp_path / "tiny-1.png").read_bytes())


def test_a_figure_that_was_not_measured_is_named_so(tmp_path):
    paper, _ = tiny()
    assert "not measured yet" in write_page(paper, {}, tmp_path).read_text()


def test_a_check_without_its_curve_does_not_hold(raw):
    _, figure = tiny((Faster("measured", "nobody"),))
    (verdict,) = verdicts_of(figure, raw)
    assert not verdict.holds and "no points of 'nobody'" in verdict.found


def test_scale():
    _, figure = tiny()
    assert (scale_of(figure, None), scale_of(figure, "full"), scale_of(figure, "0.05")) == (1.0, 1.0, 0.05)


# -- checks ------------------------------------------------------------------------------------------------------------------

UP = [(1, 10.0), (2, 20.0), (4, 40.0)]
DOWN = [(1, 40.0), (2, 30.0), (4, 20.0)]
HILL = [(1, 10.0), (2, 30.0), (4, 12.0)]
KNEE = [(1, 10.0), (2, 28.0), (4, 29.0), (8, 30.0)]
CURVES = {
    "up": UP,
    "down": DOWN,
    "hill": HILL,
    "knee": KNEE,
    "nearly": [(x, 1.04 * y) for x, y in UP],
    "far": [(9, 1.0)],
    "none": [(1, 0.0), (2, 0.0)],
}


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        (Faster("nearly", "up", at_least=1.03), True),
        (Faster("nearly", "up", at_least=1.05), False),
        (Faster("up", "down", at_least=2, at=4), True),
        (Faster("up", "down", at_least=2, at=2), False),
        (Faster("up", "down", at_least=2, at_most=3), False),
        (Faster("up", "down", at_least=1.5, above=2), True),
        (Faster("up", "down", at_least=2, somewhere=True), True),
        (Faster("up", "down", at_least=3, somewhere=True), False),
        (Faster("up", "none", at_least=99), True),
        (Faster("none", "up"), False),
        (Faster("none", "none", at_most=1), True),
        (Faster("up", "far"), False),
        (Faster("up", "down", at=7), False),
        (AtMost(40), False),
        (AtMost(41.6), True),
        (AtMost(20, "up", 2), True),
        (AtMost(19, "up", 2), False),
        (AtMost(0, "none"), True),
        (AtMost(39, "up"), False),
        (AtMost(99, "up", 3), False),
        (About("up", 2, 21, 0.05), True),
        (About("up", 2, 22, 0.05), False),
        (About("up", 3, 22, 0.5), False),
        (About("up", None, 20, 1.0), True),
        (About("up", None, 20, 0.9), False),
        (AtLeast("up", 2, 20), True),
        (AtLeast("up", 2, 21), False),
        (AtLeast("up", None, 10), True),
        (AtLeast("up", None, 11), False),
        (AtLeast("up", 3, 0), False),
        (GainsMore("nearly", "up", "up", "up", 1.03), True),
        (GainsMore("nearly", "up", "up", "up", 1.05), False),
        (GainsMore("up", "down", "down", "down"), False),
        (GainsMore("nearly", "up", "far", "far"), False),
        (Tracks("nearly", "up", 0.05), True),
        (Tracks("nearly", "up", 0.03), False),
        (Tracks("up", "far", 0.5), False),
        (Trend("up", 3), True),
        (Trend("up", 5), False),
        (Trend("up", 3, at_most=3.5), False),
        (Trend("down", 3), False),
        (Trend("down", 0.6), True),
        (Trend("down", 0.4), False),
        (Trend("down", 0.6, at_most=0.55), False),
        (Trend("none", 1.0), True),
        (Trend("none", 0.5), False),
        (Trend("hill", 1.1), False),
        (Trend("hill", 1.1, steps=0.7), True),
        (Level("knee", 0.05, after=2), True),
        (Level("knee", 0.05), False),
        (Level("far", 0.5), False),
        (Level("up", 0.05, before=1.5), False),
        (Level("hill", 0.2, after=1, before=1.5), False),
        (Peak("hill", (1.5, 3), left=0.5, right=0.5), True),
        (Peak("hill", (1.5, 3), left=0.7), False),
        (Peak("hill", (1.5, 3), right=0.7), False),
        (Peak("up", (1.5, 3)), False),
        (Peak("hill", (2.5, 4)), False),
        (Peak("down", (3, 5), minimum=True, left=0.9), True),
        (Peak("down", (3, 5), minimum=True, left=1.1), False),
        (Knee("knee", 2, 0.85), True),
        (Knee("knee", 2, 0.95), False),
        (Knee("up", 2, 0.5), False),
    ],
)
def test_checks_hold_when_they_should_and_only_then(check, holds):
    verdict = check.look(CURVES)
    assert verdict.holds is holds, verdict
    assert verdict.expected and verdict.found


# -- the papers --------------------------------------------------------------------------------------------------------------


CHAPTERS = [(name, chapter) for name in reproduction.PAPERS for chapter in reproduction.chapters_of(name)]


@pytest.mark.parametrize(
    ("name", "chapter", "clock"),
    [*((*one, "virtual") for one in CHAPTERS), *((*one, "real") for one in CHAPTERS if reproduction.paper(*one).real)],
)
def test_every_figure_of_a_paper_has_cells_and_checks(name, chapter, clock):
    paper = reproduction.paper(name, chapter).on(clock)
    assert (paper.name, paper.chapter, paper.clock) == (name, chapter, clock)
    ids = [figure.id for figure in paper.figures]
    assert len(set(ids)) == len(ids)
    for figure in paper.figures:
        if paper.left_out(figure):
            continue
        cells = figure.cells(0.01)
        assert cells and (figure.expected or figure.also) and figure.reports and figure.differs
        series = {cell.series for cell in cells}
        for check in [*figure.expected, *(check for checks in figure.also.values() for check in checks)]:
            named = [name for part in ("series", "than", "other") if (name := getattr(check, part, None)) is not None]
            assert set(named) <= series, f"{name} {figure.id} checks {named}, and has {series}"
        points = [(cell.series, cell.x) for cell in cells]
        assert len(set(points)) == len(points)


def test_the_command_measures_checks_and_writes(tmp_path, monkeypatch, capsys):
    paper, _ = tiny((Trend("measured", 1.1), Faster("half", "predicted", at_least=9)))
    monkeypatch.setattr("reproduction.cli.paper", lambda name, chapter="": paper)
    where = ["--relations", str(tmp_path / "r"), "--docs", str(tmp_path / "docs")]
    assert main(["mesh", *where]) == 1  # one check does not hold
    said = capsys.readouterr().out
    assert "DOES NOT HOLD: half is at least 9" in said and "holds: measured rises" in said
    assert "1 of 2" in (tmp_path / "docs" / "tiny.md").read_text()
    assert main(["mesh", "--page-only", *where]) == 1
    with pytest.raises(SystemExit):
        main(["mesh", "--figure", "99", *where])
    assert "FIGURE=99 is not there; mesh has 1" in capsys.readouterr().err


def test_a_chapter_of_a_thesis_is_measured_on_its_own(tmp_path, capsys):
    where = ["--relations", str(tmp_path / "r"), "--docs", str(tmp_path / "docs")]
    main(["pqp", "--chapter", "A", "--figure", "A.4b,A.4c", "--jobs", "1", "--scale", "0.1", *where])
    assert sorted(path.name for path in (tmp_path / "docs" / "data").iterdir()) == ["pqp-a-A.4b.csv", "pqp-a-A.4c.csv"]
    said = capsys.readouterr().out
    assert "holds: static is at least 2 times sbnl everywhere" in said and "pqp-a.md written" in said
    page = (tmp_path / "docs" / "pqp-a.md").read_text()
    assert "make reproduce PAPER=pqp CHAPTER=A" in page and "(pqp-a-A.4b.png)" in page
    for arguments, message in (
        (["pqp", "--chapter", "Z"], "CHAPTER=Z is not there; pqp has 4, 5, 6, 7, 8, 9, A, D"),
        (["mesh", "--chapter", "4"], "CHAPTER=4 is not there; mesh has no chapters"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err


def test_figures_are_measured_side_by_side(tmp_path, capsys):
    where = ["--relations", str(tmp_path / "r"), "--docs", str(tmp_path / "docs")]
    main(["mesh", "--figure", "5a,5b", "--jobs", "2", "--scale", "0.01", *where])
    assert sorted(path.name for path in (tmp_path / "docs" / "data").iterdir()) == ["mesh-5a.csv", "mesh-5b.csv"]
    assert "mesh.md written" in capsys.readouterr().out
