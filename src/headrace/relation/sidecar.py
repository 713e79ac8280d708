"""Small files of arrays beside the pages: a checksum, a directory, the arrays. No pickle.

checksum u64 | magic u64 | size of the directory u64 | tag u64 | directory (JSON) | arrays, each on a multiple of 64

The tag is the one that the manifest has for the file, so that a sound file from elsewhere is not taken for it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import DamagedRelation
from headrace.files import write_all
from headrace.kernels.jit import int64, kernel, uint64
from headrace.kernels.pages import page_checksum
from headrace.relation.columns import address

_MAGIC = int.from_bytes(b"HRARRAYS", "little")
_HEAD = 32


@kernel(uint64(int64, int64))
def _checksum(start, size):  # type: ignore[no-untyped-def]
    return page_checksum(start, size)


def write_arrays(path: Path, arrays: dict[str, np.ndarray[Any, Any]], tag: int) -> int:
    """Write and flush to disk; returns the size in bytes."""
    directory, at = [], 0
    for name, array in arrays.items():
        directory.append({"name": name, "type": array.dtype.str, "size": int(array.size), "at": at})
        at += _up(array.nbytes)
    text = json.dumps(directory).encode()
    body = _up(_HEAD + len(text))
    whole = np.zeros(body + at, np.uint8)
    whole[8:_HEAD].view(np.uint64)[:] = (_MAGIC, len(text), tag)
    whole[_HEAD : _HEAD + len(text)] = np.frombuffer(text, np.uint8)
    for entry, array in zip(directory, arrays.values(), strict=True):
        start = body + int(entry["at"])
        whole[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole[:8].view(np.uint64)[0] = _checksum(address(whole), whole.size)
    with path.open("wb", buffering=0) as file:
        write_all(file, whole.data)
        os.fsync(file.fileno())
    return whole.size


def read_arrays(fd: int, path: Path, shard: int, size: int, tag: int) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an open file that should be `size` bytes, or DamagedRelation, which names the path."""
    return read_arrays_into(np.empty(os.fstat(fd).st_size, np.uint8), fd, path, shard, size, tag)


def read_arrays_into(
    whole: np.ndarray[Any, np.dtype[np.uint8]], fd: int, path: Path, shard: int, size: int, tag: int
) -> dict[str, np.ndarray[Any, Any]]:
    """The same, read into given memory of the file's size; the arrays lie there."""
    done = 0
    while done < whole.size:
        got = os.preadv(fd, [whole.data[done:]], done)
        if got == 0:
            raise DamagedRelation(path, f"it ends after {done:,} bytes", shard=shard)
        done += got
    if whole.size != size:
        raise DamagedRelation(path, f"it has {whole.size:,} bytes where {size:,} were written", shard=shard)
    magic, _, found = (int(x) for x in whole[8:_HEAD].view(np.uint64))
    if magic != _MAGIC:
        raise DamagedRelation(path, "it is not a Headrace file", shard=shard)
    if int(whole[:8].view(np.uint64)[0]) != _checksum(address(whole), whole.size):
        raise DamagedRelation(path, "its checksum does not match its bytes", shard=shard)
    if found != tag:
        raise DamagedRelation(path, "it is a file of another shard, version or relation", shard=shard)
    return arrays_in(whole)


def arrays_in(whole: np.ndarray[Any, np.dtype[np.uint8]]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file that was read and checked before."""
    length = int(whole[16:24].view(np.uint64)[0])
    body = _up(_HEAD + length)
    arrays = {}
    for entry in json.loads(whole[_HEAD : _HEAD + length].tobytes()):
        type_ = np.dtype(entry["type"])
        start = body + entry["at"]
        arrays[entry["name"]] = whole[start : start + entry["size"] * type_.itemsize].view(type_)
    return arrays


def _up(n: int) -> int:
    return (n + 63) & ~63
