"""Paths that driver and executors see under the same name."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.errors import BadInput
from headrace.paths import local_path


def local_table(path: str | Path) -> Path:
    """The directory of a Delta table, absolute; refuses what only Spark can reach, and names that delta-rs would change."""
    local = local_path(path)
    if re.search("%[0-9A-Fa-f]{2}", str(local)):
        raise BadInput(f"path={str(local)!r} has a % that delta-rs takes for an escape; give another path")
    return local
