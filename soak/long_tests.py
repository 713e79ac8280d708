"""The section "tests" of `make soak`: the tests that `make test` has a short form of."""

from __future__ import annotations

import subprocess
import sys


def run(argv: list[str]) -> int:
    """Run those marked soak; `argv` is handed to pytest."""
    return subprocess.run([sys.executable, "-m", "pytest", "--soak", "-m", "soak", "tests", *argv]).returncode
