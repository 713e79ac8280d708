"""Paths that users give, and the directory where Headrace keeps state about a machine and its queries."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.errors import BadInput, shown


def local_path(path: str | Path, name: str = "path") -> Path:
    """Return a path of the file system, absolute; refuses the URL of an object store, which would become a directory `s3:`.

    Example:
        >>> local_path("file:///data/products.rel")
        PosixPath('/data/products.rel')
    """
    if not isinstance(path, str | os.PathLike):
        raise BadInput(f"{name}={shown(path)} is not a path; give a text or a pathlib.Path")
    text = str(path)
    if not text.strip():
        raise BadInput(f"{name}={shown(text)} is empty; give the path of a directory")
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        if scheme[0].lower() != "file:/":
            raise BadInput(
                f"{name}={shown(text)} is not a local directory; give the path of one that this machine and all workers see:"
                " object stores are not supported"
            )
        text = unquote(urlsplit(text).path)
    return Path(text).absolute()


def state_directory() -> Path:
    """Return the state directory: $HEADRACE_STATE, or headrace in $XDG_STATE_HOME, or headrace in ~/.local/state."""
    given = os.environ.get("HEADRACE_STATE")
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(given or Path(state, "headrace"))


def feeds_directory() -> Path:
    """Return the directory of feeds, their pulls and the queries over them: feeds in the state directory."""
    return state_directory() / "feeds"
