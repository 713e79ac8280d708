"""`python -m reproduction PAPER [--figure 10b] [--scale full]`: measure, check, draw, write the page."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from reproduction import PAPERS, paper
from reproduction.page import DOCS, write_page
from reproduction.run import RESULTS, Raw, load, measure, scale_of, verdicts_of


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if a check does not hold."""
    parser = argparse.ArgumentParser(prog="make reproduce", description="Measure the figures of a paper again.")
    parser.add_argument("paper", choices=PAPERS)
    parser.add_argument("--figure", help="only this one, as 10b")
    parser.add_argument("--scale", help="full, or a number; each figure has one of its own by default")
    parser.add_argument("--page-only", action="store_true", help="measure nothing: check and draw what was kept")
    parser.add_argument(
        "--relations", type=Path, default=RESULTS / "relations", help="where relations are made and kept"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args(arguments)
    chosen = paper(options.paper)
    known = [figure.id for figure in chosen.figures]
    if options.figure and options.figure not in known:
        parser.error(f"FIGURE={options.figure} is not there; {options.paper} has {', '.join(known)}")
    begun, found, failed = time.perf_counter(), {}, 0
    for figure in chosen.figures:
        scale = scale_of(figure, options.scale)
        wanted = not options.page_only and options.figure in (None, figure.id)
        raw: Raw | None
        if wanted:
            raw = measure(
                chosen, figure, scale, options.relations, lambda line: print(line, flush=True), options.results
            )
        else:
            raw = load(chosen, figure, scale, options.results)
        if raw is None:
            continue
        found[figure.id] = raw
        for verdict in verdicts_of(figure, raw):
            failed += not verdict.holds
            print(f"  {'holds' if verdict.holds else 'DOES NOT HOLD'}: {verdict.expected}: {verdict.found}")
    page = write_page(chosen, found, options.docs)
    print(f"{page} written; {failed} checks do not hold; {time.perf_counter() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
