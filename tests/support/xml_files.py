"""Directories of XML documents, for streams of files: a document appears whole, each later than the one before."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

_number = count()


def xml_files(directory: Path, *documents: bytes) -> Path:
    directory.mkdir(exist_ok=True)
    for document in documents:
        n = next(_number)
        draft = directory / f".{n:06d}"
        draft.write_bytes(document)
        os.utime(draft, (1e9 + n, 1e9 + n))
        draft.rename(directory / f"{n:06d}.xml")
    return directory
