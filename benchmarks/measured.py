"""Runs a measurement in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def measured(module: str, words: list[str], patience: float) -> dict[str, Any]:
    """Run a module that prints JSON, and return what it saw: what went wrong, as "error", if it fails or takes too long.

    Args:
        module: of this package, such as "xml.measure".
        words: its arguments.
        patience: seconds after which it is given up.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{module}", *words],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {patience:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found
