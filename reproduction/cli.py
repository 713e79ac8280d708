"""`python -m reproduction PAPER [--chapter A] [--figure 10b] [--scale full] [--clock real]`: measure, check, draw, write.

`python -m reproduction --check all`: measure, and compare the verdicts with those on the pages.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from headrace.errors import HeadraceError
from reproduction import PAPERS, chapters_of, paper
from reproduction.compare import compare_with_pages
from reproduction.page import write_page
from reproduction.run import DOCS, RESULTS, Raw, load, measure_all, verdicts_of


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if a check does not hold; with --check, if a verdict is not the one on its page."""
    parser = argparse.ArgumentParser(prog="make reproduce", description="Measure the figures of a paper again.")
    parser.add_argument("paper", choices=PAPERS, nargs="?")
    parser.add_argument("--chapter", help="only this one of a thesis, as A; all of them by default")
    parser.add_argument("--figure", help="only this one, as 10b; or several, as 5a,10b")
    parser.add_argument(
        "--scale", help="full, or a number, on a page that is not committed; each figure has one of its own by default"
    )
    parser.add_argument(
        "--clock",
        choices=("virtual", "real"),
        default="virtual",
        help="real: the same figures in the seconds of this machine and with its own disk, on a page of their own (pqp)",
    )
    parser.add_argument(
        "--check",
        help="write no page, but compare the verdicts with those on the pages: all, or pages and figures, as pqp-4,ssij-13",
    )
    parser.add_argument("--page-only", action="store_true", help="measure nothing: check and draw what was kept")
    parser.add_argument(
        "--relations", type=Path, default=RESULTS / "relations", help="where relations are made and kept"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=min(4, os.cpu_count() or 1),
        help="figures measured side by side (as many as cores, 4 at most); time is simulated, and comes out the same",
    )
    parser.add_argument("--docs", type=Path, help="where pages and raw results are")
    options = parser.parse_args(arguments)
    if options.check:
        try:
            return compare_with_pages(options.check, options.relations, options.jobs, options.docs or DOCS)
        except HeadraceError as error:
            parser.error(str(error))
    if not options.paper:
        parser.error(f"PAPER= is missing: one of {', '.join(PAPERS)}")
    if not options.docs:  # what has another scale stays beside what is committed
        options.docs = RESULTS / f"scale-{options.scale}" if options.scale else DOCS
    chapters = chapters_of(options.paper)
    if options.chapter and options.chapter not in chapters:
        there = ", ".join(filter(None, chapters)) or "no chapters"
        parser.error(f"CHAPTER={options.chapter} is not there; {options.paper} has {there}")
    if options.figure and not options.chapter and len(chapters) > 1:
        parser.error(f"FIGURE={options.figure} needs its chapter: CHAPTER={'|'.join(chapters)}")
    return max(_chapter(parser, options, chapter) for chapter in ([options.chapter] if options.chapter else chapters))


def _chapter(parser: argparse.ArgumentParser, options: argparse.Namespace, chapter: str) -> int:
    try:
        chosen = paper(options.paper, chapter).on(options.clock)
    except HeadraceError as error:
        parser.error(str(error))
    known = [figure.id for figure in chosen.figures]
    picked = options.figure.split(",") if options.figure else known
    for figure_id in picked:
        if figure_id not in known:
            parser.error(f"FIGURE={figure_id} is not there; {options.paper} has {', '.join(known)}")
    for figure in chosen.figures:
        if options.figure and figure.id in picked and chosen.left_out(figure):
            parser.error(f"FIGURE={figure.id} is not measured in real time: {chosen.left_out(figure)}")
    begun, found, failed = time.perf_counter(), {}, 0
    wanted = [f for f in chosen.figures if not options.page_only and f.id in picked and not chosen.left_out(f)]
    try:
        measure_all(chosen, wanted, options.scale, options.relations, options.jobs, options.docs)
    except HeadraceError as error:
        parser.error(str(error))
    for figure in chosen.figures:
        raw: Raw | None = load(chosen, figure, options.docs)
        if raw is None or chosen.left_out(figure):
            continue
        found[figure.id] = raw
        print(f"{chosen.label} {figure.id}")
        for verdict in verdicts_of(figure, raw):
            failed += not verdict.holds
            print(f"  {'holds' if verdict.holds else 'DOES NOT HOLD'}: {verdict.expected}: {verdict.found}")
    page = write_page(chosen, found, options.docs)
    print(f"{page} written; {failed} checks do not hold; {time.perf_counter() - begun:.0f} s")
    return 1 if failed else 0
