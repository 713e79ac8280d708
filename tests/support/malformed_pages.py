"""Pages, sidecars and manifests that were written wrong, with checksums that fit: damage that no checksum finds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headrace.kernels.jit import int64, kernel, store_u64, void
from headrace.kernels.pages import HEADER, page_checksum
from headrace.relation.columns import address
from headrace.relation.manifest import Manifest
from headrace.relation.sidecar import read_arrays, write_arrays

ROWS, USED = 6, 7  # numbers of the u32 words of a page's header


@kernel(void(int64, int64))
def reseal(page, size):  # type: ignore[no-untyped-def]
    """Give a page the checksum of the bytes that it has now."""
    store_u64(page, page_checksum(page, size))


def bitmap_of(column: int) -> int:
    """The number of the u32 word that leads to a column's null bitmap."""
    return HEADER // 4 + 2 * column


def data_of(column: int) -> int:
    """The number of the u32 word that leads to a column's data."""
    return bitmap_of(column) + 1


def rewrite_page(path: Path, page_size: int, number: int, edit: Callable[[Any], None]) -> None:
    """Edit the u32 words of a page in its file, and seal it again."""
    raw = bytearray(path.read_bytes())
    page = np.frombuffer(raw, np.uint8)[number * page_size : (number + 1) * page_size]
    edit(page.view(np.uint32))
    reseal(address(page), page_size)
    path.write_bytes(raw)


def rewrite_sidecar(root: Path, shard: int, part: str, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit the arrays of a sidecar, and write it with the tag that the manifest has for it."""
    path = max(root.glob("manifest-*.json"))
    manifest = Manifest.load(path)
    facts = getattr(manifest.shards[shard], part)
    fd = os.open(root / facts.name, os.O_RDONLY)
    arrays = {
        name: array.copy() for name, array in read_arrays(fd, root / facts.name, shard, facts.bytes, facts.tag).items()
    }
    os.close(fd)
    edit(arrays)
    facts.bytes = write_arrays(root / facts.name, arrays, facts.tag)
    path.write_bytes(manifest.dump())


def rewrite_manifest(root: Path, edit: Callable[[Manifest], None]) -> None:
    """Edit the latest manifest."""
    path = max(root.glob("manifest-*.json"))
    manifest = Manifest.load(path)
    edit(manifest)
    path.write_bytes(manifest.dump())
