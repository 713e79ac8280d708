"""Run one section of `make soak` in this process: python -m soak.section NAME OPTION..."""

from __future__ import annotations

import importlib
import signal
import sys

from soak.__main__ import SECTIONS


def main() -> int:
    """What the section's `run` returns. Who is told to end tidies up: servers that it started, what it mounted."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    return int(importlib.import_module(SECTIONS[sys.argv[1]][0]).run(sys.argv[2:]))


if __name__ == "__main__":
    raise SystemExit(main())
