"""Runs are compared with pages: verdicts that differ are listed; quick figures of each paper have those of their pages."""

from collections import Counter
from dataclasses import replace

import pytest

import reproduction
from headrace.errors import BadInput
from reproduction.checks import About, Trend
from reproduction.compare import Difference, compare_with_pages, differences, papers, pick, table
from reproduction.figure import Computed, Figure, Paper
from reproduction.page import page_text, read_verdicts, write_page
from reproduction.run import DOCS, data_file, load, measure, verdicts_of

CHECKS = (Trend("up", 1.5), Trend("up", 0.5), About("up", 1, 9, 0.5))


def paper_of(*checks, last=2.0):
    figure = Figure(
        "1a",
        "It goes up",
        "x",
        lambda scale: [Computed("up", x, lambda directory, x=x: {"rate": last if x else 1.0}) for x in (0, 1)],
        reports="It rises: by half.",
        expected=checks,
        differs="Nothing.",
    )
    return Paper(name="tiny", title="A tiny paper", setting="In a test.", figures=(figure,))


def verdicts(paper, directory):
    (figure,) = paper.figures
    return verdicts_of(figure, measure(paper, figure, 1.0, directory, lambda line: None, directory))


@pytest.fixture
def docs(tmp_path):
    """The page of a paper, as it was committed."""
    paper = paper_of(*CHECKS)
    verdicts(paper, tmp_path)
    write_page(paper, {"1a": load(paper, paper.figures[0], tmp_path)}, tmp_path)
    return tmp_path


def test_a_page_says_its_verdicts(docs):
    said = read_verdicts((docs / "tiny.md").read_text())
    assert list(said) == ["1a"]
    assert [text.split()[0] for text in said["1a"]] == ["up"] * 3
    assert list(said["1a"].values()) == [True, False, False]


def test_a_verdict_that_differs_is_listed(docs, tmp_path, monkeypatch, capsys):
    def compare(paper):
        monkeypatch.setattr("reproduction.compare.papers", lambda: [paper])
        return compare_with_pages("all", tmp_path / "r", 1, docs, tmp_path / "check")

    before = (docs / "tiny.md").read_bytes(), (docs / "data" / "tiny-1a.csv").read_bytes()
    assert compare(paper_of(*CHECKS)) == 0
    assert "Every verdict is the one on its page." in capsys.readouterr().out
    assert compare(paper_of(*CHECKS, last=0.4)) == 1
    said = capsys.readouterr().out.splitlines()
    header = next(i for i, line in enumerate(said) if line.startswith("figure"))
    assert said[header].split("  ")[0] == "figure" and "page says" in said[header] and "run says" in said[header]
    assert [line.split()[0] for line in said[header + 1 : header + 3]] == ["tiny-1a", "tiny-1a"]
    assert "rises" in said[header + 1] and said[header + 1].split("  ")[-1] == "does not hold"
    assert "falls" in said[header + 2] and said[header + 2].split("  ")[-1] == "holds"
    assert before == ((docs / "tiny.md").read_bytes(), (docs / "data" / "tiny-1a.csv").read_bytes())


def test_a_check_that_one_of_them_does_not_have_is_a_difference(docs):
    paper = paper_of(*CHECKS[:2], About("up", 0, 1, 0.1))
    found = differences(
        paper, paper.figures[0], verdicts(paper, docs), read_verdicts((docs / "tiny.md").read_text())["1a"]
    )
    assert [(d.page, d.run) for d in found] == [(None, True), (False, None)]
    assert "has no such check" in table(found)
    alone = replace(paper.figures[0], alone=True)
    assert differences(paper, alone, [], {"it": True}) == [Difference("tiny-1a (real time)", "it", True, None)]


def test_figures_are_picked_by_page_and_by_name():
    there = papers()
    picked = {p.label: [f.id for f in figures] for p, figures in pick("mesh-8,def,pqp-4-real-4.1a", there)}
    assert picked["mesh"] == ["8"] and picked["pqp-4-real"] == ["4.1a"] and len(picked) == 3
    assert len(picked["def"]) == len(reproduction.paper("def").figures)
    everything = pick("all", there)
    assert [p.label for p, _ in everything] == [p.label for p in there]
    assert all(len(figures) == sum(not p.left_out(f) for f in p.figures) for p, figures in everything)
    with pytest.raises(BadInput, match="CHECK=mesh-99 is not there: expected all, one of mesh, def"):
        pick("mesh-99,def", there)


KEPT = 1_000_000  # bytes of a file of raw results, at most


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.label)
def test_a_page_is_what_its_raw_results_give(paper):
    measured = [f for f in paper.figures if not paper.left_out(f)]
    found = {figure.id: load(paper, figure) for figure in measured}
    assert all(found.values()), [name for name, raw in found.items() if raw is None]
    assert {name: raw["scale"] for name, raw in found.items()} == {figure.id: figure.scale for figure in measured}
    assert max(data_file(paper, figure).stat().st_size for figure in measured) < KEPT
    assert page_text(paper, found) == (DOCS / f"{paper.label}.md").read_text()


def test_there_are_no_raw_results_without_a_figure():
    expected = {data_file(p, figure).name for p in papers() for figure in p.figures if not p.left_out(figure)}
    assert {path.name for path in (DOCS / "data").glob("*")} <= expected


#: Three figures of each paper, and of chapter 7 of [PQP], that take a few seconds at a scale; "" is that of the page. At the
#: others verdicts are the same.
QUICK = {
    "mesh-5a": "",
    "mesh-5b": "",
    "mesh-8": "",
    "def-8": "",
    "def-10a": "0.1",
    "def-10b": "0.05",
    "xhj-6a": "0.005",
    "xhj-6b": "0.005",
    "xhj-8": "0.005",
    "ssij-11": "0.0003",
    "ssij-14": "0.0003",
    "ssij-15": "0.0005",
    "pqp-5-5.5f": "",
    "pqp-6-6.4a": "",
    "pqp-7-7.7": "0.2",
    "pqp-7-7.8": "",
    "pqp-7-7.12b": "",
    "pqp-a-A.7b": "",
}


def test_there_are_three_quick_figures_of_each_paper():
    found = Counter("pqp-7" if name.startswith("pqp-7-") else name.split("-")[0] for name in QUICK)
    assert found == dict.fromkeys(("mesh", "def", "xhj", "ssij", "pqp", "pqp-7"), 3)


@pytest.fixture(scope="module")
def relations(tmp_path_factory):
    return tmp_path_factory.mktemp("relations")


#: The slowest of three papers: two others of each show in `make test` whether its figures are still what their pages say.
LONGEST = {"def-10b", "pqp-7-7.8", "ssij-14"}


@pytest.mark.parametrize(
    ("name", "scale"),
    [pytest.param(*quick, marks=pytest.mark.soak if quick[0] in LONGEST else ()) for quick in QUICK.items()],
)
def test_a_quick_figure_has_the_verdicts_of_its_page(name, scale, relations, tmp_path, capsys):
    differs = compare_with_pages(name, relations, 1, DOCS, tmp_path, scale or None)
    assert not differs, capsys.readouterr().out
