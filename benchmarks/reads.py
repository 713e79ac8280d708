"""Reads of pages beside what the disk gives: `python -m benchmarks reads`.

The probe reads the same runs of bytes from the same files, past the page cache, with as many threads in compiled code, and does
nothing with them. Ours plans, checks every page and hands them out, in a buffer of some megabytes.
"""

from __future__ import annotations

import argparse
import resource
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console

from benchmarks.compare.cli import spawn
from benchmarks.compare.measure import Task
from benchmarks.tables import new_table

_HERE = Path(__file__).parents[1]
_SHARES = (0.005, 0.05, 0.25)  # of all pages, at random
_BUFFER = 8 << 20  # bytes
_TURNS = 5


def main(arguments: list[str], console: Console, root: Path) -> int:
    options = parser().parse_args(arguments)
    import headrace as hr
    from headrace.arrays import Int64s
    from headrace.metrics import JoinStats
    from headrace.relation.read_pool import read_pool
    from headrace.relation.reader import PAGE_MASK, PageReader

    task = Task("core", options.rows, str(root.resolve()), "any", str(_HERE))
    task.data.write()
    made = spawn(replace(task, section="prepare"))[0]["relation"]
    relation = hr.Relation.open(made, disk="direct")
    version, disk, size = relation.opened, relation.disk, relation.page_size
    everything = np.concatenate([version.places(shard) for shard in range(relation.num_shards)])
    rng, buffer = np.random.default_rng(7), np.frombuffer(bytearray(_BUFFER + size), np.uint8)
    aligned = -(-buffer.ctypes.data // size) * size
    reader = PageReader(version, _BUFFER)

    def ours(places: Int64s, stats: JoinStats) -> None:
        with closing(reader.read(places, stats)) as rounds:
            for _ in rounds:
                pass

    def probe(places: Int64s, stats: JoinStats) -> None:
        """The runs of the same plan, as many at a time as the buffer has room for."""
        first, length = disk.runs(places, size, _BUFFER // size // 8)
        fds, ends = version.fd_of(version.files_of(first)), np.cumsum(length)
        begin = 0
        while begin < first.size:
            end = int(np.searchsorted(ends, ends[begin] - length[begin] + _BUFFER // size, side="right"))
            sizes = length[begin:end] * size
            targets = aligned + np.cumsum(sizes) - sizes
            offsets = (first[begin:end] & PAGE_MASK) * size
            pending = read_pool().start(fds[begin:end], offsets, sizes, targets, disk.workers)
            assert pending is not None and pending.wait() < 0
            begin = end
        stats.reads += first.size
        stats.bytes_read += int(length.sum()) * size

    table = new_table(
        f"Reads past the page cache, {relation.num_pages:,} pages of {size // 1024} KiB",
        *("pages wanted", "pages a read", "reads/s", "probe", "of the probe", "MB/s", "CPU µs a read", "probe's"),
    )
    for share in _SHARES:
        seen = {run: [JoinStats(), 0.0, 0.0] for run in (ours, probe)}
        for turn in range(_TURNS + 1):
            places = np.sort(rng.choice(everything, int(share * everything.size), replace=False))
            for run, (stats, _, _) in seen.items():
                wall, cpu = perf_counter(), _cpu()
                run(places, stats if turn else JoinStats())  # the first turn warms up
                if turn:
                    seen[run][1] += perf_counter() - wall
                    seen[run][2] += _cpu() - cpu
        (mine, wall, cpu), (other, other_wall, other_cpu) = seen[ours], seen[probe]
        rate, other_rate = mine.reads / wall, other.reads / other_wall
        table.add_row(
            *(f"{share:.1%}", f"{mine.bytes_read / size / mine.reads:.1f}", f"{rate:,.0f}", f"{other_rate:,.0f}"),
            *(
                f"{mine.bytes_read / wall / (other.bytes_read / other_wall):.0%}",
                f"{mine.bytes_read / wall / 1e6:,.0f}",
            ),
            *(f"{1e6 * cpu / mine.reads:.1f}", f"{1e6 * other_cpu / other.reads:.1f}"),
        )
    console.print(table)
    return 0


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks reads", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of R (10 million)")
    return parser
