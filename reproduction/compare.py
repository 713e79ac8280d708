"""`make reproduce CHECK=all`: measure figures as their pages have them, and compare the verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import reproduction
from headrace.cli.pace import Pace
from headrace.errors import BadInput
from reproduction.checks import Verdict
from reproduction.figure import Figure, Paper
from reproduction.page import read_verdicts
from reproduction.run import DOCS, RESULTS, load, measure_all, verdicts_of

_SAYS = {True: "holds", False: "does not hold", None: "has no such check"}


@dataclass(frozen=True)
class Difference:
    """A check of which page and run do not say the same; None: one of them does not have it."""

    figure: str
    check: str
    page: bool | None
    run: bool | None


def papers() -> list[Paper]:
    """Every page that there can be, those in real time at the end."""
    names = ((name, chapter) for name in reproduction.PAPERS for chapter in reproduction.chapters_of(name))
    virtual = [reproduction.paper(*one) for one in names]
    return virtual + [paper.on("real") for paper in virtual if paper.real]


def compare_with_pages(
    names: str,
    relations: Path,
    jobs: int,
    docs: Path = DOCS,
    kept: Path = RESULTS / "check",
    scale: str | None = None,
) -> int:
    """Exit code 1 if a verdict is not the one on its page.

    Parameters
    ----------
    names
        "all", or pages and figures, as "ssij-13,pqp-4".
    relations, jobs
        Where relations are made, and how many figures are measured side by side.
    docs, kept
        Where the pages are, and where the raw results of this run are put.
    scale
        Another than that of the page, for a quick look.
    """
    chosen = pick(names, papers())
    found = []
    pace = Pace(sum(len(figures) for _, figures in chosen), "figures")
    for paper, figures in chosen:
        measure_all(paper, figures, scale, relations, jobs, kept, pace)
        page = docs / f"{paper.label}.md"
        said = read_verdicts(page.read_text()) if page.exists() else {}
        for figure in figures:
            raw = load(paper, figure, kept)
            assert raw is not None
            found += differences(paper, figure, verdicts_of(figure, raw), said.get(figure.id, {}))
    print(table(found) if found else "Every verdict is the one on its page.")
    print(f"{sum(len(figures) for _, figures in chosen)} figures measured; raw results are in {kept / 'data'}")
    return 1 if found else 0


def pick(names: str, there: list[Paper]) -> list[tuple[Paper, list[Figure]]]:
    """Pages and figures by their names."""
    asked = set(names.split(","))
    known, chosen = {"all"}, []
    for paper in there:
        measured = {f"{paper.label}-{f.id}": f for f in paper.figures if not paper.left_out(f)}
        known |= {paper.label, *measured}
        figures = [f for name, f in measured.items() if asked & {"all", paper.label, name}]
        if figures:
            chosen.append((paper, figures))
    if asked - known:
        raise BadInput(
            f"CHECK={','.join(sorted(asked - known))} is not there: expected all, one of"
            f" {', '.join(p.label for p in there)}, or a figure of one, as ssij-13"
        )
    return chosen


def differences(paper: Paper, figure: Figure, verdicts: Iterable[Verdict], said: dict[str, bool]) -> list[Difference]:
    """What a run says of a figure's checks beside what its page says."""
    name = f"{paper.label}-{figure.id}" + (" (real time)" if figure.alone else "")
    run = {verdict.expected: verdict.holds for verdict in verdicts}
    both = {check: (said.get(check), run.get(check)) for check in [*run, *(c for c in said if c not in run)]}
    return [Difference(name, check, *says) for check, says in both.items() if says[0] != says[1]]


def table(found: list[Difference]) -> str:
    """The differences as text."""
    rows = [("figure", "check", "page says", "run says")]
    rows += [(d.figure, d.check, _SAYS[d.page], _SAYS[d.run]) for d in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
