"""Paths that driver and executors see under the same name."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.errors import BadInput


def local_path(path: str | Path, name: str = "path") -> Path:
    """A directory of the file system, absolute; refuses what only Spark can reach."""
    text = str(path)
    if isinstance(path, str) and (scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text)):
        if scheme[0].lower() != "file:/":
            raise BadInput(
                f"{name}={text!r} is not a local directory; give one that all workers see, since they write to it"
            )
        text = unquote(urlsplit(text).path)
    return Path(text).absolute()


def local_table(path: str | Path) -> Path:
    """The directory of a Delta table, absolute; refuses what only Spark can reach, and names that delta-rs would change."""
    local = local_path(path)
    if re.search("%[0-9A-Fa-f]{2}", str(local)):
        raise BadInput(f"path={str(local)!r} has a % that delta-rs takes for an escape; give another path")
    return local
