"""Directories of XML documents, for streams of files, and real documents of the machine."""

from __future__ import annotations

import os
import re
from itertools import count
from pathlib import Path

_number = count()


def xml_files(directory: Path, *documents: bytes) -> Path:
    """Put documents into a directory; each appears whole, and later than the one before."""
    directory.mkdir(exist_ok=True)
    for document in documents:
        n = next(_number)
        draft = directory / f".{n:06d}"
        draft.write_bytes(document)
        os.utime(draft, (1e9 + n, 1e9 + n))
        draft.rename(directory / f"{n:06d}.xml")
    return directory


def real_files() -> list[Path]:
    """Documents and drawings of installed packages, such as unicode-cldr-core: not every machine has some."""
    found = [path for kind in ("*.xml", "*.svg") for path in Path("/usr/share").rglob(kind)]
    return sorted(p for p in found if p.is_file() and p.stat().st_size < 1 << 20)


def some_real_files(most: int = 60) -> list[Path]:
    """So many of them at most, from all over."""
    found = real_files()
    return found[:: max(1, -(-len(found) // most))]


def uses_entities(text: bytes) -> bool:
    """Whether a document refers to entities of its own, which are not expanded."""
    return re.search(rb"&(?!lt;|gt;|amp;|apos;|quot;|#)[^\s;]+;", text) is not None
