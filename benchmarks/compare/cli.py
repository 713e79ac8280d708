"""Measure this tree and another revision in turns; exit with 1 where this one is slower or larger by more than the limit."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine, results
from benchmarks.compare.measure import LARGE, MICRO_BATCHES, Task
from benchmarks.compare.report import report_compare
from benchmarks.runner import RunFailed
from benchmarks.spark.source import stream_directory
from benchmarks.streams import stream_file
from headrace.cli.pace import Pace

_HERE = Path(__file__).parents[2]
_PATIENCE = 1800  # seconds for one process; on an idle machine the longest takes a minute


def main(arguments: list[str], console: Console, root: Path) -> int:
    options = parser().parse_args(arguments)
    root = root.resolve()
    try:
        other = checkout(options.revision, root)
        raw = _run(options, {"this": _HERE, "other": other}, root, console)
    except (RunFailed, subprocess.TimeoutExpired) as failure:
        console.print(f"[red]The comparison failed:[/] {failure}", highlight=False)
        return 2
    console.print(f"Raw results: {_save(raw)}", highlight=False)
    return 0 if report_compare(raw, console) else 1


def checkout(revision: str, root: Path) -> Path:
    """The sources of a revision in a directory named by its commit. It stays, so that its kernels are compiled only once."""
    commit = _git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    if not commit:
        raise RunFailed(f"git knows no revision {revision!r} in {_HERE}")
    tree = root / "revisions" / commit
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
            archive = _git("archive", "--prefix=t/", commit, "src")
            subprocess.run(["tar", "x", "-C", scratch], input=archive, capture_output=True, check=False)
            if not Path(scratch, "t", "src", "headrace").exists():
                raise RunFailed(f"revision {revision!r} has no src/headrace")
            Path(scratch, "t").rename(tree)
    return tree


def _run(options: argparse.Namespace, trees: dict[str, Path], root: Path, console: Console) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "other": trees["other"].name,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine.describe(root),
        "parameters": {name: getattr(options, name) for name in ("rounds", "limit", "only", "rows")},
        "pairs": [],
    }
    tasks = [Task("core", rows, str(root), order) for rows in options.rows for order in ("any", "stream")]
    tasks.append(Task("spark", max(options.rows), str(root)))
    chosen = [task for task in tasks if options.only in (None, task.section)]
    pace = Pace(len(chosen) * options.rounds, "rounds")
    for task in chosen:
        task.data.write()
        stream_file(task.data, "zipf")
        for batch in MICRO_BATCHES if task.section == "spark" else ():
            stream_directory(task.data, "zipf", batch, LARGE)
        ready = {}
        for name in ("other", "this"):  # the other revision makes the relation that both read
            ready[name] = replace(task, tree=str(trees[name]))
            made = spawn(replace(ready[name], section="prepare"))[0]
            ready[name] = replace(ready[name], relation=made["relation"])
        for number in range(options.rounds):
            turns = ("this", "other") if number % 2 == 0 else ("other", "this")
            console.print(f"{task.section}, {task.rows:,} rows: round {number + 1}", highlight=False)
            seen = {name: spawn(ready[name]) for name in turns}
            for this, other in zip(seen["this"], seen["other"], strict=True):
                what = task.order if task.section == "core" else f"{this['batch']:,} a micro-batch"
                case = f"{task.section}, {task.rows:,} rows, {what}"
                raw["pairs"].append({"section": task.section, "case": case, "this": this, "other": other})
            _save(raw)  # a run that is cut short leaves what it has measured
            pace.done(f"{task.section}, {task.rows:,} rows")
    return raw


def _save(raw: dict[str, Any]) -> Path:
    return results.save(raw, "-".join(["compare", raw["other"][:9], *filter(None, [raw["parameters"]["only"]])]))


def spawn(task: Task) -> list[dict[str, Any]]:
    """Run a task in a fresh process. PYTHONPATH comes before the editable install, and so decides which headrace it imports."""
    with tempfile.TemporaryDirectory() as scratch:
        spec, result = Path(scratch, "task.json"), Path(scratch, "result.json")
        spec.write_text(json.dumps(asdict(task)))
        command = [sys.executable, "-m", "benchmarks.compare.measure", str(spec), str(result)]
        paths = os.pathsep.join([str(Path(task.tree, "src")), str(_HERE)])
        settings: dict[str, Any] = {"cwd": scratch, "env": {**os.environ, "PYTHONPATH": paths}, "timeout": _PATIENCE}
        done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
        if not result.exists():
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RunFailed(f"{task.section} in {task.tree}: {last}")
        out: list[dict[str, Any]] = json.loads(result.read_text())
        return out


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=_HERE, capture_output=True, check=False).stdout


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=__doc__)
    add = parser.add_argument
    add("revision", metavar="REV", help="the other revision, as git knows it; this tree may have uncommitted changes")
    add("--rounds", type=int, choices=range(1, 100), metavar="N", default=5, help="of each case: A B, B A, … (5)")
    add("--limit", type=_share, default="3%", help="how much slower or larger this tree may be, at the median (3%%)")
    add("--only", choices=("core", "spark"), help="AdaptiveJoin in one process, or enrich on Spark; both if not given")
    add("--rows", type=_sizes, default="1000000,10000000", help="rows of R (1 and 10 million; Spark: the largest)")
    return parser


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
