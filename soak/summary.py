"""What a run did and found: counts, one line, JSON, and a table for a page."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from headrace.units import format_duration


@dataclass
class Summary:
    """The outcome of a run, or of a part of it."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    """processes killed, by what they were or did"""
    events: Counter[str] = field(default_factory=Counter)
    """everything else that was done to them"""
    skipped: dict[str, str] = field(default_factory=dict)
    """events that could not be, and why"""
    restarts: int = 0
    """processes that were started again, after a kill or an error"""
    refused: Counter[str] = field(default_factory=Counter)
    """errors that processes ended with where that is allowed, by what was done to them"""
    rows: int = 0
    """rows that must have left, of all queries"""
    versions: int = 0
    """versions of relations that were made"""
    lost: int = 0
    doubled: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        """Add what another part of the run did."""
        self.kills += other.kills
        self.events += other.events
        self.refused += other.refused
        self.skipped |= other.skipped
        self.restarts += other.restarts
        self.rows += other.rows
        self.versions += other.versions
        self.lost += other.lost
        self.doubled += other.doubled
        self.faults += other.faults

    @property
    def whole(self) -> bool:
        """Whether nothing is lost, nothing doubled, and nothing else is wrong."""
        return not (self.lost or self.doubled or self.faults)

    def words(self) -> str:
        """One line."""
        return (
            f"{self.lost:,} lost, {self.doubled:,} doubled: {self.kills.total():,} kills and {self.events.total():,} other"
            f" events in {format_duration(round(self.seconds))}, {self.restarts:,} restarts, {self.rows:,} rows,"
            f" {self.versions:,} versions, seed {self.seed}"
        )

    def as_json(self) -> dict[str, Any]:
        """For json.dumps."""
        # Not asdict, which makes a Counter of the items of a Counter.
        return {f.name: dict(v) if isinstance(v := getattr(self, f.name), Counter) else v for f in fields(self)}

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Summary:
        """What `as_json` gave."""
        return cls(**{**found, **{name: Counter(found[name]) for name in ("kills", "events", "refused")}})

    def table(self) -> str:
        """A table in Markdown."""
        lines = ["| what was done | times |", "|---|---:|"]
        lines += [f"| kill -9: {kind} | {count:,} |" for kind, count in sorted(self.kills.items())]
        lines += [f"| {kind} | {count:,} |" for kind, count in sorted(self.events.items())]
        lines += [f"| {kind} | left out: {reason} |" for kind, reason in sorted(self.skipped.items())]
        lines += [
            "",
            "| what came of it | |",
            "|---|---:|",
            f"| rows lost | {self.lost:,} |",
            f"| rows doubled | {self.doubled:,} |",
            f"| other faults | {len(self.faults):,} |",
            f"| kills in all | {self.kills.total():,} |",
            f"| restarts | {self.restarts:,} |",
            f"| rows compared | {self.rows:,} |",
            f"| versions of relations | {self.versions:,} |",
            f"| duration | {format_duration(round(self.seconds))} |",
            f"| seed | {self.seed} |",
        ]
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write NAME.json and NAME.md."""
        path.with_suffix(".json").write_text(json.dumps(self.as_json(), indent=1) + "\n")
        path.with_suffix(".md").write_text(self.table() + "\n")
