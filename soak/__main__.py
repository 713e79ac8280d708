"""`make soak`: kill -9 at random for a while, a burst, a promised delay, and the tests that `make test` has a short form of.

The warehouse must be whole after each.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from soak.burst import burst
from soak.chaos import chaos
from soak.promise import promise

PARTS = ("chaos", "burst", "promise", "tests")


def main() -> int:
    """Exit code 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(prog="make soak", description="Kill everything at random; nothing must be lost.")
    parser.add_argument("what", nargs="*", help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the burst, and of the promise")
    parser.add_argument("--seed", type=int, default=None, help="of what is killed when; any by default, and shown")
    parser.add_argument("--directory", type=Path, help="kept when it is over; a temporary one by default")
    parser.add_argument("--json", action="store_true", help="write what happened as JSON")
    options = parser.parse_args()
    chosen = options.what or PARTS
    for part in chosen:
        if part not in PARTS:
            parser.error(f"{part!r} is none of {', '.join(PARTS)}")
    seed = secrets.randbits(32) if options.seed is None else options.seed
    root = options.directory or Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    tell = sys.stderr if options.json else sys.stdout
    found: dict[str, Any] = {"seed": seed}
    wrong: list[str] = []

    def say(line: str) -> None:
        print(line, file=tell, flush=True)

    say(f"seed {seed}, in {root}")
    if "chaos" in chosen:
        killed = chaos(root / "chaos", options.kills, seed, say)
        found["chaos"], wrong = asdict(killed), wrong + killed.faults
        each = ", ".join(f"{count} {kind}" for kind, count in killed.kills.most_common())
        say(
            f"{killed.kills.total()} killed ({each}) in {killed.lives} lives and {killed.seconds:.0f} s; {killed.rows:,} rows,"
            f" {killed.versions} versions of the relation"
        )
    if "burst" in chosen:
        over = burst(root / "burst", options.seconds, say)
        found["burst"], wrong = asdict(over), wrong + over.faults
        delays = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in over.delays.items())
        say(
            f"{over.rows:,} rows, {over.shed:,} shed and {over.replayed:,} brought back; delays: {delays}; Python workers grew by"
            f" {over.growth >> 20} MiB"
        )
    if "promise" in chosen:
        kept = promise(root / "promise", options.seconds, say)
        found["promise"], wrong = asdict(kept), wrong + kept.faults
    if "tests" in chosen:
        code = subprocess.run([sys.executable, "-m", "pytest", "--soak", "-m", "soak", "tests"], stdout=tell).returncode
        found["tests"], wrong = code, wrong + ([f"the long tests ended with {code}"] if code else [])
    say("\n".join(wrong) or "whole: every row is there once")
    if options.json:
        print(json.dumps(found | {"faults": wrong}))
    if not wrong and not options.directory:
        shutil.rmtree(root)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
