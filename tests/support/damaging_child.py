"""A process that damages files and uses them, started again when it crashes or hangs. See `programs/damage_files.py`."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

PATIENCE = 120.0  # seconds without a new case: it gives each of them up after twenty, unless it hangs outside of Python


class DamagingChild:
    """Runs the cases of a kind in a process of its own, and reports what became of them.

    Parameters
    ----------
    place
        A directory for instances.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self._progress = place / "progress"
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, kind: str, how: str, most: int | None, seed: int = 0) -> dict[str, Any]:
        """Try the cases of a kind: what `Report` has. A crash or a hang is one of those that went wrong."""
        process = self._process or self._start()
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps([kind, how, most, seed]).encode() + b"\n")
        process.stdin.flush()
        before = ""
        poll = select.poll()  # select takes no number of a file above 1,023
        poll.register(process.stdout, select.POLLIN)
        while not poll.poll(PATIENCE * 1000):
            if before == (before := self._case()):
                process.kill()
                break
        line = process.stdout.readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        ended = process.wait()
        self._process = None
        case = self._case()
        return {
            "refused": 0,
            "same": 0,
            "files": 0,
            "wrong": [f"{case}: the process ended with {ended}, see its stderr"],
        }

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate(timeout=60)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.programs.damage_files", str(self.place), str(self._progress)]
        root, state = Path(__file__).parents[2], {"HEADRACE_STATE": str(self.place)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, env=os.environ | state
        )
        return self._process

    def _case(self) -> str:
        return self._progress.read_text().strip() if self._progress.exists() else "nothing"
