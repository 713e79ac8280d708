"""The process of one cell: it warms up, says so, is told to go on, and runs its stream for a while."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.memory import release_freed_memory
from soak.memory.cells import Cell
from soak.memory.operators import watched


def main() -> int:
    """Standard output: "warm", and in the end what happened, as JSON."""
    asked = json.loads(sys.argv[1])
    op = watched(Cell(**asked["cell"]), Path(asked["place"]), asked["relation"])
    try:
        op.warm_up()
        release_freed_memory()
        print("warm", flush=True)
        sys.stdin.readline()
        op.run(time.monotonic() + asked["seconds"])
    except HeadraceError as error:
        print(json.dumps({"refused": f"{type(error).__name__}: {error}", **asdict(op.facts)}), flush=True)
        return 0
    print(json.dumps(asdict(op.facts)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
