"""Which file it is: a file says under which name it was written, so that an intact file of another place is not taken for it."""

from __future__ import annotations

from pathlib import Path


def place_of(path: Path, levels: int = 1) -> str:
    """Return the end of a path: its name, and with more levels those of the directories above it that Headrace itself names.

    Directories further up are the user's, who may move them.

    Example
    -------
    >>> place_of(Path("/data/state/q/enrich/shard-0000/0000000007.waiting.arrow"), 4)
    'q/enrich/shard-0000/0000000007.waiting.arrow'
    """
    return "/".join(path.absolute().parts[-levels:])


def check_place(path: Path, written: object) -> None:
    """Refuse, with ValueError, the file of another place. One that says nothing was written before files said so."""
    if written is not None and (not isinstance(written, str) or place_of(path, written.count("/") + 1) != written):
        raise ValueError(f"it was written as {str(written)[:200]}, and is the file of another place")
