"""Small JSON files with a checksum of every byte. Each is on disk before it has its name. (DESIGN D11)"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.files.local import open_new, read_regular, sync_directory, write_all

_CHECKSUM = "checksum"  # the last member of the file's object: the CRC-32 of the text without it


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
    if dump_checked(facts) != data:
        raise ValueError("its checksum does not match its text")
    return facts


def read_checked(path: Path) -> dict[str, Any]:
    """Read the facts of a file; ValueError if it is damaged, OSError if it is missing or no regular file."""
    return parse_checked(read_regular(path))


def replace_checked(path: Path, draft: Path, facts: Mapping[str, Any]) -> None:
    """Write facts to a draft, have them on disk, and give them the name of the file, which they replace at once."""
    with open_new(draft) as file:
        write_all(file, dump_checked(facts))
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)
