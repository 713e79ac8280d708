"""What tells the state of a scanner from every other: numbers of pulls and of groups mean nothing in another one."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from headrace.errors import DamagedLog
from headrace.files import NotRegular, TooLarge, exists, read_regular
from headrace.runlog.files import CURE, LogFile, read_facts, read_state, write_facts

_NAME = "log-id"
_BARE = re.compile(rb"[0-9a-f]{32}")  # as earlier releases wrote it
STORE = "store"  # the fact of a file of the state that says which state it is of


def log_identity(state: Path) -> str:
    """Return the random name of a state; it is made when it is first asked for."""
    path = state / _NAME
    if not exists(path):
        write_facts(path, {"log": uuid.uuid4().hex})
    found = known_identity(state)
    assert found is not None
    return found


def known_identity(state: Path) -> str | None:
    """Return the random name of a state; None if it has none yet."""
    path = state / _NAME
    try:
        bare = read_regular(path, most=1 << 16)
        return bare.decode() if _BARE.fullmatch(bare) else str(read_facts(path)["log"])
    except FileNotFoundError:
        return None
    except (NotRegular, TooLarge, KeyError) as error:
        raise DamagedLog(f"{path} is damaged: it does not say which state of feeds it is; {CURE}") from error


def read_of_state(path: Path) -> LogFile:
    """Read a file of a directory of the state, and refuse one of another state."""
    file = read_state(path)
    check_state(path, path.parent.parent, file.facts.get(STORE))
    return file


def check_state(path: Path, state: Path, written: object) -> None:
    """Refuse a file that was written for another state. One that says nothing was written before files said so."""
    if written is not None and written != known_identity(state):
        raise DamagedLog(f"{path} is damaged: it is of another state of feeds than {state / _NAME}; {CURE}")
