"""Sample the core cell, print where a row's nanoseconds go, and draw a flame graph."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from benchmarks import results
from benchmarks.compare.cli import spawn
from benchmarks.compare.measure import BATCH, BUDGET, MEASURED, WARM, Task
from benchmarks.profile.flame import flame_graph
from benchmarks.profile.stages import joining, read_stacks, shares
from benchmarks.streams import stream_file
from benchmarks.tables import new_table

_HERE = Path(__file__).parents[2]
_RATE = 500  # samples a second


def main(arguments: list[str], console: Console, root: Path) -> int:
    options = parser().parse_args(arguments)
    task = Task("core", options.rows, str(root.resolve()), "any", str(_HERE))
    task.data.write()
    stream_file(task.data, "zipf")
    task = replace(task, relation=spawn(replace(task, section="prepare"))[0]["relation"])
    with tempfile.TemporaryDirectory() as scratch:
        spec, result, raw = (Path(scratch, name) for name in ("task.json", "result.json", "stacks.txt"))
        spec.write_text(json.dumps(asdict(task)))
        sampler = [str(Path(sys.executable).with_name("py-spy")), "record", "--format", "raw", "--rate", str(_RATE)]
        program = [sys.executable, "-m", "benchmarks.compare.measure", str(spec), str(result)]
        paths = os.pathsep.join([str(_HERE / "src"), str(_HERE)])
        command = [*sampler, "--output", str(raw), "--", *program]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
        )
        if not raw.exists() or not result.exists():
            console.print(f"[red]Nothing was sampled:[/] {done.stderr.strip()[-300:]}", highlight=False)
            return 2
        seen = json.loads(result.read_text())[0]
        stacks = joining(read_stacks(raw.read_text().splitlines()))
    row = 1e9 * seen["cpu"] / (MEASURED * BATCH)
    title = f"AdaptiveJoin, {options.rows / 1e6:g} million rows, Zipf, {BUDGET:.0%} of R in memory, page cache"
    table = new_table(
        f"{title}: {row:,.0f} ns of CPU a row, {1e3 / row:.2f} million rows/s", "stage", "share", "ns a row"
    )
    for stage, share in shares(stacks):
        table.add_row(stage, f"{share:.1%}", f"{share * row:,.0f}")
    console.print(table)
    picture = options.picture or results.DIRECTORY / "profile-core.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(flame_graph(stacks, f"{title}; {(WARM + MEASURED) * BATCH:,} rows from the start"))
    console.print(f"Flame graph: {picture}", highlight=False)
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks profile", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of R (10 million)")
    parser.add_argument("--picture", type=Path, help="where the flame graph goes (the directory of results)")
    return parser
