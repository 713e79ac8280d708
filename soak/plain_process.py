"""The chaos without Spark as a process of its own, seen from the harness: started, heard, and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import IO, Any

from soak.small_disk import SmallDisk, small_disk
from soak.summary import Summary
from soak.watched import HarnessFault, Watched

SILENCE = 600.0  # seconds without a word from it after which it hangs: a stop of a minute and a slow child are less


class PlainProcess:
    """`soak.plain_chaos` at work.

    Parameters
    ----------
    settings
        Its settings: see `soak.plain_chaos.Settings`.
    watched
        What watches the thread that hears it.
    heard
        Called with each thing that it tells.
    """

    def __init__(
        self, settings: dict[str, Any], watched: Watched, heard: Callable[[dict[str, Any]], None] = lambda facts: None
    ) -> None:
        self.summary: Summary | None = None
        self.kills: Counter[str] = Counter()
        self.ready = Event()
        self._watched, self._heard_by = watched, heard
        self._errors = Path(settings["root"]) / "plain.log"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "soak.plain_chaos", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )
        self._last = time.monotonic()
        self._thread = watched.start("hears the chaos without Spark", self._hear)

    def _hear(self) -> None:
        out: IO[str] | None = self._process.stdout
        assert out is not None
        for line in out:
            self._last = time.monotonic()
            facts = json.loads(line)
            if "summary" in facts:
                self.summary = Summary.of_json(facts["summary"])
            elif "kill" in facts:
                self.kills[facts["kill"]] += 1
            self.ready.set()
            self._heard_by(facts)
        code = self._process.wait()
        self.ready.set()
        if self.summary is None:
            said = self._errors.read_text(errors="replace")[-4000:]
            raise HarnessFault(f"the chaos without Spark ended with {code} and without a summary:\n{said}")

    def check(self) -> None:
        """Raise if it hangs, or has found a fault."""
        self._watched.check()
        if self.summary is not None and not self.summary.whole:
            raise HarnessFault("\n".join(self.summary.faults) or self.summary.words())
        if self._process.poll() is None and time.monotonic() - self._last > SILENCE:
            raise HarnessFault(f"the chaos without Spark has said nothing for {SILENCE:.0f} s: it hangs")

    def finish(self) -> Summary:
        """Let it kill what it still has to, end its queries and compare; returns what it did."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        while self._thread.is_alive():
            self.check()
            time.sleep(0.05)
        self._watched.check()
        assert self.summary is not None
        return self.summary

    def close(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()  # its children end with it
        self._process.wait()
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()


def plain_settings(root: Path, disk: SmallDisk, kills: int, seed: int, **others: Any) -> dict[str, Any]:
    """The settings of a run."""
    return {"root": str(root), "small": str(disk.path), "no_small": disk.reason, "kills": kills, "seed": seed, **others}


def plain_chaos(root: Path, kills: int, seed: int, *, limit: float = 3600.0, **settings: Any) -> Summary:
    """Run the chaos without Spark alone, in an empty directory, to its end."""
    root.mkdir(parents=True, exist_ok=True)
    watched = Watched(limit)
    with small_disk(root / "small", "64m") as disk:
        process = PlainProcess(plain_settings(root, disk, kills, seed, **settings), watched)
        try:
            return process.finish()
        except HarnessFault as fault:
            found = process.summary or Summary(seed)
            return found if not found.whole else _failed(found, fault)
        finally:
            process.close()


def _failed(summary: Summary, fault: HarnessFault) -> Summary:
    summary.faults.append(str(fault))
    return summary
