"""Raw results on disk: one JSON file a run, named by date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent / "results"


def save(results: dict[str, Any], name: str) -> Path:
    DIRECTORY.mkdir(exist_ok=True)
    path = DIRECTORY / f"{results['date'][:10]}-{name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def load(path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(path.read_text())
    return results


def latest() -> Path:
    files = sorted(DIRECTORY.glob("*.json"), key=lambda p: p.stat().st_mtime)
    if not files:
        raise FileNotFoundError(f"no results in {DIRECTORY}: run `python -m benchmarks` first")
    return files[-1]
