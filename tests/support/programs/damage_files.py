"""Damages the files of one kind after the other, as its input asks, under a limit of memory: what is tried may crash or hang.

A line of input is a JSON list: the kind, the damage (`bytes`, `sizes`, `swaps`, `instead`), the most cases or null, and a seed.
The answer is a line too. The case that is being tried is in the file that the program is given.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from random import Random

from tests.support.damage import Damaged
from tests.support.damage_kinds import KINDS

MEMORY = (
    1 << 30
)  # bytes beyond those of the process with all that it has loaded: a damaged length must not ask for more


def limit_memory() -> None:
    """Refuse more address space than a use of small files needs."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(place: str, progress: str) -> None:
    faulthandler.enable()
    told = os.open(progress, os.O_WRONLY | os.O_CREAT)

    def note(text: str) -> None:
        os.pwrite(told, text.encode().ljust(400)[:400], 0)

    made: dict[str, Damaged] = {}
    limited = False
    for line in sys.stdin:
        name, how, most, seed = json.loads(line)
        note(f"{name} is being made")
        if name not in made:
            made[name] = Damaged(KINDS[name], Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place)))
        if not limited:
            limited = True
            limit_memory()
        some = made[name]
        report = some.run(some.cases(how, Random(seed), most), note)
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        sys.stdout.flush()
    for some in made.values():
        shutil.rmtree(some.root.parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
