"""`python -m soak fuzz-storage`: manifests, pages and run logs that were written wrong, with checksums that fit.

The inputs are tried in a child, whose memory is limited: one that crashes or hangs it is found too. What is found is kept.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.support.fuzzed_storage import TARGETS, fuzz
from tests.support.programs.damage_files import limit_memory

_LAST = "last"  # the input that is being tried: its name, a line end, and its content
_SILENT = (
    120.0  # seconds without another input: the child gives each up after twenty, unless it hangs outside of Python
)


def run(argv: list[str]) -> int:
    """Fuzz for some seconds each; returns 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m soak fuzz-storage", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each target")
    parser.add_argument("--only", choices=sorted(TARGETS), action="append", help="of the targets; all by default")
    parser.add_argument("--seed", type=int, default=None, help="any by default, and shown")
    parser.add_argument("--directory", type=Path, help="where what is found is kept; a temporary one by default")
    options = parser.parse_args(argv)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    place = options.directory or Path(tempfile.mkdtemp(prefix="headrace-fuzz-"))
    print(f"seed {seed}; what is found is kept in {place}", flush=True)
    found = 0
    for name in options.only or sorted(TARGETS):
        tried, wrong = fuzz_for(name, seed, place, seconds=options.seconds)
        found += len(wrong)
        print(f"{name}: {tried:,} inputs in {options.seconds:.0f} s, {len(wrong)} findings", flush=True)
        for line in wrong:
            print(f"  {line}", flush=True)
    return 1 if found else 0


def fuzz_for(
    name: str, seed: int, place: Path, *, seconds: float = 3600.0, inputs: int = sys.maxsize
) -> tuple[int, list[str]]:
    """Fuzz one target in children, one after the other where they crash; returns how many inputs were tried, and what was wrong.

    It ends after so many seconds, or inputs beside those of the corpus: with these it is the same in every run.
    """
    place.mkdir(parents=True, exist_ok=True)
    end, tried, wrong = time.monotonic() + seconds, 0, list[str]()
    while (left := end - time.monotonic()) > 0 and tried < inputs:
        child = _Child(name, seed + tried, place, left, inputs)
        some, lines, ended = child.wait()
        tried, wrong = tried + some, wrong + lines
        if ended:
            wrong.append(f"the child ended with {ended}: {child.keep()}")
    return tried, wrong


class _Child:
    """A process that fuzzes, and is ended when it says nothing for too long."""

    def __init__(self, name: str, seed: int, place: Path, seconds: float, inputs: int) -> None:
        self.place, self.last = place, place / f"{name}-{_LAST}"
        self.last.unlink(missing_ok=True)
        command = [sys.executable, "-m", "soak.fuzz_storage", name, str(seed), str(place), str(seconds), str(inputs)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> tuple[int, list[str], int]:
        """Returns the inputs that were tried, what was wrong, and the code that it ended with, if it is not 0."""
        while True:
            try:
                out, _ = self._process.communicate(timeout=_SILENT)
                break
            except subprocess.TimeoutExpired:
                if not self.last.exists() or time.time() - self.last.stat().st_mtime > _SILENT:
                    self._process.kill()
        lines = out.splitlines()
        if self._process.returncode:
            return 0, lines, self._process.returncode
        return json.loads(lines[-1]), lines[:-1], 0

    def keep(self) -> Path:
        """Keep the input that ended it."""
        kept = self.place / f"{self.last.name}-{secrets.token_hex(4)}"
        if self.last.exists():
            self.last.rename(kept)
        return kept


def _fuzz_here(name: str, seed: int, place: Path, seconds: float, inputs: int) -> None:
    """What the child does. Its last line is the number of inputs; each before says what was wrong, and where the input is."""
    faulthandler.enable()
    tried, seen = 0, Counter[str]()
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-", dir=_memory()) as root:
        target = TARGETS[name](Path(root))
        limit_memory()
        last = os.open(place / f"{name}-{_LAST}", os.O_WRONLY | os.O_CREAT, 0o600)

        def note(file: str, data: bytes) -> None:
            nonlocal tried
            tried += 1
            os.ftruncate(last, 0)
            os.pwrite(last, file.encode() + b"\n" + data, 0)

        end = time.monotonic() + seconds
        for file, data, wrong in fuzz(
            target, Random(seed), lambda count: time.monotonic() > end or count >= inputs, note
        ):
            alike = re.sub(r"\d+", "#", f"{Path(file).suffix} {wrong}")[:100]
            seen[alike] += 1
            if seen[alike] == 1:
                kept = place / f"{file.replace('/', '__')}..{secrets.token_hex(4)}"
                kept.write_bytes(data)
                print(f"{file}: {wrong} ({kept})", flush=True)
    print(json.dumps(tried))


def _memory() -> str | None:
    """A directory in memory, where there is one: thousands of small files are written."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    _fuzz_here(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
