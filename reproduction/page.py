"""The page of a paper: for each figure the plot, what the text reports, what was measured, and where they differ."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from reproduction.figure import WHOLE, Figure, Paper
from reproduction.plot import plot
from reproduction.run import DOCS, Raw, curves_of, data_file, verdicts_of

_HEADER = "| expected | found | |"
_SECTION = "## Figure "
_VERDICTS = {True: "holds", False: "**does not hold**"}


def write_page(paper: Paper, found: dict[str, Raw], directory: Path = DOCS) -> Path:
    """Write the page, and a plot for each figure that was measured."""
    directory.mkdir(parents=True, exist_ok=True)
    for figure in paper.figures:
        if figure.id in found and not paper.left_out(figure):
            plot(figure, found[figure.id], directory / _image(paper, figure))
    path = directory / f"{paper.label}.md"
    path.write_text(page_text(paper, found))
    return path


def page_text(paper: Paper, found: dict[str, Raw]) -> str:
    """The page as it follows from raw results."""
    parts = [f"# {paper.title}", "", *_wrapped(paper.setting), "", *_summary(paper, found)]
    for figure in paper.figures:
        if figure.id in found and not paper.left_out(figure):
            parts += _section(paper, figure, found[figure.id])
    chapter = f" CHAPTER={paper.chapter}" if paper.chapter else ""
    picked = chapter + (" CLOCK=real" if paper.clock == "real" else "")
    parts += [
        "## Run it again",
        "",
        f"`make reproduce PAPER={paper.name}{picked}` measures all of it and writes this page; `FIGURE=` picks a figure, and",
        f"`SCALE=full` takes the paper's sizes. `make reproduce CHECK={paper.label}` measures it and compares the verdicts with",
        "those on this page. Raw results are in `data/`, a CSV file a figure.",
    ]
    return "\n".join(parts) + "\n"


def _image(paper: Paper, figure: Figure) -> str:
    return f"{paper.label}-{figure.id}.png"


def read_verdicts(page: str) -> dict[str, dict[str, bool]]:
    """What a page says of each check of each figure."""
    said: dict[str, dict[str, bool]] = {}
    figure, inside = "", False
    for line in page.splitlines():
        if line.startswith(_SECTION):
            figure = line.removeprefix(_SECTION).split(":")[0]
            said[figure] = {}
        inside = line == _HEADER or (inside and line.startswith("|"))
        if inside:
            expected, verdict = line.strip("| ").split(" | ")[0], line.rstrip("| ").split(" | ")[-1]
            if verdict in _VERDICTS.values():
                said[figure][expected] = verdict == _VERDICTS[True]
    return said


def _linked(paper: Paper, figure: Figure) -> str:
    name = data_file(paper, figure).name
    return f"[{name}](data/{name})"


def _summary(paper: Paper, found: dict[str, Raw]) -> list[str]:
    lines = ["| figure | shows | scale | checks that hold |", "|---|---|---|---|"]
    for figure in paper.figures:
        if paper.left_out(figure):
            lines.append(f"| {figure.id} | {figure.title} | | not in real time: {paper.left_out(figure)} |")
            continue
        if figure.id not in found:
            lines.append(f"| {figure.id} | {figure.title} | | not measured yet |")
            continue
        verdicts = verdicts_of(figure, found[figure.id])
        held = sum(v.holds for v in verdicts)
        lines.append(f"| {figure.id} | {figure.title} | {found[figure.id]['scale']:g} | {held} of {len(verdicts)} |")
    return [*lines, ""]


def _section(paper: Paper, figure: Figure, raw: Raw) -> list[str]:
    lines = [f"{_SECTION}{figure.id}: {figure.title}", "", f"![{figure.title}]({_image(paper, figure)})", ""]
    if figure.note:
        lines += [*_wrapped(figure.note), ""]
    if paper.clock == "real":
        lines += [f"Taken on {raw['date']}, {raw['cores']} cores with a load of {raw['load']:g}, its own included.", ""]
    lines += [
        *_wrapped(f"**The paper reports:** {figure.reports}"),
        "",
        f"**Measured** ({_linked(paper, figure)}):",
        "",
        *_table(figure, raw),
        "",
    ]
    lines += [_HEADER, "|---|---|---|"]
    lines += [f"| {v.expected} | {v.found} | {_VERDICTS[v.holds]} |" for v in verdicts_of(figure, raw)]
    return [*lines, "", *_wrapped(f"**Where we differ, and why:** {figure.differs}"), ""]


def _table(figure: Figure, raw: Raw) -> list[str]:
    curves = {name: dict(points) for name, points in curves_of(figure, raw).items()}
    beside = {name: dict(points) for name, points in curves_of(figure, raw, figure.over).items()} if figure.over else {}
    refused = {(c["series"], c["x"]) for c in raw["cells"] if "refused" in c}
    xs = sorted({cell["x"] for cell in raw["cells"]})
    lines = ["| " + " | ".join([figure.x, *curves]) + " |", "|" + "---:|" * (1 + len(curves))]
    for x in xs:
        row = [f"{x:,.4g}" if x < 1e4 else f"{x:,.0f}"]
        for name, points in curves.items():
            value = points.get(x)
            unit = f" in {beside[name][x]:,.2f} {figure.over}" if beside and value is not None else ""
            row.append(
                f"{value:,.{figure.decimals}f}{unit}"
                if value is not None
                else "too little memory"
                if (name, x) in refused
                else ""
            )
        lines.append("| " + " | ".join(row) + " |")
    return [*lines, *_clean_up(raw)] if figure.over and any(WHOLE in c for c in raw["cells"]) else lines


def _clean_up(raw: Raw) -> list[str]:
    """All that a progressive join gives in the end, as a line of the table."""
    ends = {cell["series"]: cell for cell in raw["cells"]}
    row = [f"{end['total']:,.0f} in {end[WHOLE]:,.2f} seconds" if WHOLE in end else "" for end in ends.values()]
    return ["| " + " | ".join(["and cleaned up", *row]) + " |"]


def _wrapped(text: str, width: int = 120) -> list[str]:
    """Lines of a width; an empty line in the text stays one."""
    lines: list[str] = []
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
        lines += [""] * (number > 0) + textwrap.wrap(
            " ".join(paragraph.split()), width, break_long_words=False, break_on_hyphens=False
        )
    return lines
