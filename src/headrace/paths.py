"""Directories where Headrace keeps state about a machine and its queries."""

from __future__ import annotations

import os
from pathlib import Path


def state_directory() -> Path:
    """Return the state directory: $HEADRACE_STATE, or headrace in $XDG_STATE_HOME, or headrace in ~/.local/state."""
    given = os.environ.get("HEADRACE_STATE")
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(given or Path(state, "headrace"))
