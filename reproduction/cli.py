"""`python -m reproduction PAPER [--chapter A] [--figure 10b] [--scale full] [--clock real]`: measure, check, draw, write."""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from headrace.errors import HeadraceError
from reproduction import PAPERS, chapters_of, paper
from reproduction.figure import Figure
from reproduction.page import DOCS, write_page
from reproduction.run import RESULTS, Raw, load, measure, scale_of, verdicts_of


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if a check does not hold."""
    parser = argparse.ArgumentParser(prog="make reproduce", description="Measure the figures of a paper again.")
    parser.add_argument("paper", choices=PAPERS)
    parser.add_argument("--chapter", help="only this one of a thesis, as A; all of them by default")
    parser.add_argument("--figure", help="only this one, as 10b; or several, as 5a,10b")
    parser.add_argument("--scale", help="full, or a number; each figure has one of its own by default")
    parser.add_argument(
        "--clock",
        choices=("virtual", "real"),
        default="virtual",
        help="real: the same figures in the seconds of this machine and with its own disk, on a page of their own (pqp)",
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
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args(arguments)
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
        _measure_all(options, chapter, wanted)
    except HeadraceError as error:
        parser.error(str(error))
    for figure in chosen.figures:
        raw: Raw | None = load(chosen, figure, scale_of(figure, options.scale), options.results)
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


def _measure_all(options: argparse.Namespace, chapter: str, figures: list[Figure]) -> None:
    """Side by side, and those alone that take real time."""
    together = [f.id for f in figures if not f.alone] if options.jobs > 1 else []
    if len(together) > 1:
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            for _ in pool.map(_measure, [options] * len(together), [chapter] * len(together), together):
                pass
    for figure in figures:
        if len(together) < 2 or figure.alone:
            _measure(options, chapter, figure.id)


def _measure(options: argparse.Namespace, chapter: str, name: str) -> None:
    chosen = paper(options.paper, chapter).on(options.clock)
    figure = next(f for f in chosen.figures if f.id == name)
    scale = scale_of(figure, options.scale)
    measure(chosen, figure, scale, options.relations, lambda line: print(line, flush=True), options.results)
