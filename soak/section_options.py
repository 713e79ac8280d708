"""Options that sections share, and the directory that a section runs in."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def section_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with --directory and --json."""
    parser = argparse.ArgumentParser(prog=f"make soak ARGS={name}", description=description)
    parser.add_argument("--directory", type=Path, help="kept when it is over; a temporary one by default")
    parser.add_argument("--json", action="store_true", help="write what happened as JSON")
    return parser


def run_section(
    options: argparse.Namespace, work: Callable[[Path, Callable[[str], None]], tuple[dict[str, Any], list[str]]]
) -> int:
    """Run what gives a description of what happened, and faults; the directory is kept if there are any."""
    root = options.directory or Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    tell = sys.stderr if options.json else sys.stdout

    def say(line: str) -> None:
        print(line, file=tell, flush=True)

    say(f"in {root}")
    found, wrong = work(root / "run", say)
    if options.json:
        print(json.dumps(found))
    for fault in wrong:
        say(fault)
    if not wrong and not options.directory:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if wrong else 0
