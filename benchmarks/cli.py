"""The command line: run the benchmarks, then report; or report on results kept earlier."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from benchmarks import results
from benchmarks.compare.cli import main as compare
from benchmarks.create import SYSTEMS as CREATE_SYSTEMS
from benchmarks.feeds.plan import FeedsPlan
from benchmarks.popularity import main as popularity
from benchmarks.profile.cli import main as profile
from benchmarks.progressive.embeddings import main as embeddings
from benchmarks.progressive.plan import ProgressivePlan
from benchmarks.reads import main as reads
from benchmarks.report import report
from benchmarks.runner import RunFailed, Runner, RunPlan
from benchmarks.sampling.plan import SamplingPlan
from benchmarks.service.plan import ServicePlan
from benchmarks.spark import BEYOND
from benchmarks.spark import SYSTEMS as SPARK_SYSTEMS
from benchmarks.spark.beyond import BeyondPlan, beyond_rows
from benchmarks.spark.growth import main as growth
from benchmarks.spark.plan import SparkPlan
from benchmarks.streams import WORKLOADS
from benchmarks.systems import IN_MEMORY, LOOKUP
from benchmarks.xml.plan import XmlPlan
from headrace.errors import BadInput
from headrace.units import parse_size

SECTIONS = ("lookup", "memory", "create", "service", "progressive", "sampling", "xml", "feeds", "spark", "beyond")
SERVICE_ROWS = 200_000
_PLAIN_WIDTH = 150  # in a file or a log, where nothing says how wide a line may be
_DATA = Path(__file__).parent / ".data"
_SYSTEMS = tuple(dict.fromkeys([*LOOKUP, *IN_MEMORY, *CREATE_SYSTEMS, *SPARK_SYSTEMS]))

T = TypeVar("T")


def main() -> int:
    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    if sys.argv[1:2] == ["compare"]:
        return compare(sys.argv[2:], console, _DATA)
    if sys.argv[1:2] == ["regress"]:
        return compare(["--only", "core", "--limit", "5%", "--rounds", "3", *sys.argv[2:]], console, _DATA)
    if sys.argv[1:2] == ["profile"]:
        return profile(sys.argv[2:], console, _DATA)
    if sys.argv[1:2] == ["reads"]:
        return reads(sys.argv[2:], console, _DATA)
    if sys.argv[1:2] == ["growth"]:
        return growth(sys.argv[2:], console)
    if sys.argv[1:2] == ["popularity"]:
        return popularity(console)
    if sys.argv[1:2] == ["embeddings"]:
        return embeddings(console)
    arguments = _parser().parse_args()
    if arguments.sections[:1] == ["report"]:
        file = Path(arguments.sections[1]) if len(arguments.sections) > 1 else results.latest()
        report(file, console)
        return 0
    unknown = [s for s in arguments.sections if s not in SECTIONS]
    if unknown:
        others = "report, growth, compare, regress, profile, reads, popularity, embeddings"
        console.print(f"no section {unknown[0]!r}; choose from {', '.join(SECTIONS)}, or {others}")
        return 2
    quick = arguments.quick
    sections = tuple(arguments.sections or (s for s in SECTIONS if s != BEYOND))
    plan = RunPlan(
        sections=sections,
        rows=arguments.rows or (1_000_000, 10_000_000),
        batches=arguments.batch,
        budgets=tuple(b / 100 for b in arguments.budget),
        workloads=arguments.workload or WORKLOADS,
        systems=arguments.systems,
        seconds=arguments.seconds or (2.0 if quick else 5.0),
        warmup=arguments.warmup or (1.5 if quick else 3.0),
        repeats=1 if quick else 3,
        root=arguments.data,
        core=arguments.core,
        service=ServicePlan(
            rows=(arguments.rows or (30_000 if quick else SERVICE_ROWS,))[0],
            budgets=tuple(b / 100 for b in arguments.budget),
            exponents=(0.0, 1.0) if quick else (0.0, 0.5, 1.0),
        ),
        progressive=ProgressivePlan(200_000, 40_000, 10_000, (5_000,)) if quick else ProgressivePlan(),
        sampling=SamplingPlan((10_000,), 200_000, 4 << 20, spark=False, covered=200) if quick else SamplingPlan(),
        xml=XmlPlan(
            tuple(10**6 * n for n in arguments.megabytes or ((2,) if quick else (20, 1000))), str(arguments.data)
        ),
        feeds=FeedsPlan(300) if quick else FeedsPlan(),
        spark=SparkPlan(
            rows=arguments.rows or ((1_000_000,) if quick else (1_000_000, 10_000_000, 30_000_000)),
            batches=arguments.batch,
            workloads=arguments.workload or (("zipf",) if quick else ("zipf", "uniform", "absent")),
            systems=arguments.systems,
            seconds=arguments.seconds or (3.0 if quick else 8.0),
            warmup=int(arguments.warmup or (2 if quick else 6)),
            memory=arguments.memory,
            loads=not arguments.joins,
        ),
        beyond=BeyondPlan(
            rows=arguments.rows or ((1_000_000,) if quick else beyond_rows(arguments.data)),
            batches=arguments.batch,
            workloads=arguments.workload or (("zipf",) if quick else BeyondPlan.workloads),
            systems=arguments.systems,
            seconds=arguments.seconds or (3.0 if quick else BeyondPlan.seconds),
            warmup=int(arguments.warmup or (1 if quick else BeyondPlan.warmup)),
        ),
    )
    name = arguments.name or "-".join(sections)
    try:
        raw = Runner(plan, console).run(lambda raw: results.save(raw, name))
    except RunFailed as failure:
        console.print(f"[red]The run failed:[/] {failure}")
        return 1
    left_out = {c["system"] for c in raw["cells"] if c.get("left_out")}
    file = results.save(raw, name)
    console.print(f"Raw results: {file}")
    report(file, console)
    return 1 if left_out else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    others = (
        "or: report [FILE], growth [FILE...], compare REV, regress REV (core alone, 5%%), profile (each has --help)"
    )
    parser.add_argument("sections", nargs="*", help=f"{', '.join(SECTIONS)} (default: all but {BEYOND}), {others}")
    add = parser.add_argument
    add("--rows", type=_list(int), help="sizes of R (1 and 10 million; spark: 30 million too; service: 200,000)")
    add("--megabytes", type=_list(int), help="sizes of XML documents (20 and 1000)")
    add("--batch", type=_list(int), default=(10_000, 500_000), help="rows in a stream batch")
    add("--budget", type=_list(float), default=(1.0, 5.0, 10.0), help="memory, in per cent of R (spark: 10)")
    add("--memory", type=_size, help="spark: the budget as a size, such as 64MiB, whatever the size of R")
    add("--joins", action="store_true", help="spark: joins alone, without loads")
    add("--workload", type=_choice(WORKLOADS), help=f"{', '.join(WORKLOADS)} (spark: not temporal)")
    add("--systems", type=_choice(_SYSTEMS), default=(), help=", ".join(_SYSTEMS))
    add(
        "--quick",
        action="store_true",
        help="2 s a cell and one create each; spark: 3 s, 1 million rows, zipf; service: 30,000 rows",
    )
    add("--seconds", type=float, help="measured time a cell (5; spark: 8)")
    add("--warmup", type=float, help="seconds of warm-up a cell, at most (3); spark: large micro-batches (6)")
    add("--core", type=int, default=0, help="the core that lookups run on (0)")
    add("--data", type=Path, default=_DATA, help="where data is kept and reused")
    add("--name", help="name of the results file")
    return parser


def _size(text: str) -> int:
    try:
        return parse_size(text, name="--memory")
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _list(kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    return lambda text: tuple(kind(part) for part in text.replace("_", "").split(","))


def _choice(known: tuple[Any, ...]) -> Callable[[str], tuple[Any, ...]]:
    def parse(text: str) -> tuple[Any, ...]:
        chosen = tuple(text.split(","))
        for word in chosen:
            if word not in known:
                raise argparse.ArgumentTypeError(f"no {word!r}; choose from {', '.join(known)}")
        return chosen

    return parse
