"""Small JSON files with a checksum of every byte. Each is on disk before it has its name. (DESIGN D11)"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.files.names import replace
from headrace.files.open_files import open_new, read_regular
from headrace.files.place import check_place, place_of

_CHECKSUM = "checksum"  # the last member of the file's object: the CRC-32 of the text without it
_FILE = "file"  # the member before it: the name that the file was written under
_MOST = 64 << 20  # bytes of such a file: it is small, and a damaged one must not ask for gigabytes


def dump_checked(facts: Mapping[str, Any]) -> bytes:
    """Return facts as JSON that holds its own checksum.

    Example
    -------
    >>> dump_checked({"batch": 7})
    b'{"batch": 7, "checksum": 3128778744}'
    """
    return json.dumps({**facts, _CHECKSUM: zlib.crc32(json.dumps(facts).encode())}).encode()


def parse_checked(data: bytes) -> dict[str, Any]:
    """Return the facts that `dump_checked` was given; ValueError unless every byte is the one that it returned."""
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    if not isinstance(facts, dict) or facts.pop(_CHECKSUM, None) is None:
        raise ValueError("it has no checksum")
    # The bytes are compared, and not only the checksum: JSON has several texts for the same facts.
    try:
        same = dump_checked(facts) == data
    except RecursionError as error:  # what can be read may be too deep to be written
        raise ValueError("it is not JSON") from error
    if not same:
        raise ValueError("its checksum does not match its text")
    return facts


def read_checked(path: Path) -> dict[str, Any]:
    """Read the facts of a file; ValueError if it is damaged or another file, OSError if it is missing or no regular file."""
    facts = parse_checked(read_regular(path, most=_MOST))
    check_place(path, facts.pop(_FILE, None))
    return facts


def write_checked(path: Path, draft: Path, facts: Mapping[str, Any], levels: int = 1) -> None:
    """Write facts to a draft of a file, and have them on disk; `levels` as for `place_of`."""
    with open_new(draft) as file:
        file.write(dump_checked({**facts, _FILE: place_of(path, levels)}))
        file.sync()


def replace_checked(path: Path, draft: Path, facts: Mapping[str, Any], levels: int = 1) -> None:
    """Write facts to a draft, have them on disk, and give them the name of the file, which they replace at once."""
    write_checked(path, draft, facts, levels)
    replace(draft, path)
