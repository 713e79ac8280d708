"""Sidecars: small files of named arrays beside the pages (index, filter, statistics). No pickle.

    header (_HEADER) | directory of the arrays (JSON) | arrays, each on a multiple of 64 bytes

The tag in the header is the one that the manifest has for the file, so an intact file of another shard or version is noticed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from headrace.arrays import AnyArray, UInt8s
from headrace.errors import DamagedRelation
from headrace.files import open_new, read_at, read_into
from headrace.kernels.jit import int64, kernel, uint64
from headrace.kernels.pages import page_checksum
from headrace.relation.columns import address

_MAGIC = int.from_bytes(b"HRARRAYS", "little")
_HEADER = np.dtype(
    [
        ("checksum", "<u8"),  # of every other byte of the file
        ("magic", "<u8"),
        ("directory_bytes", "<u8"),
        ("tag", "<u8"),
    ]
)
_MOST_DIRECTORY = 1 << 16  # bytes: that of a few arrays is far smaller, and a damaged header must not ask for gigabytes
_ALIGNMENT = 64  # bytes: a cache line, and what the checksum reads at a time


@kernel(uint64(int64, int64))
def _checksum(start, size):  # type: ignore[no-untyped-def]
    return page_checksum(start, size)


def write_arrays(path: Path, arrays: dict[str, AnyArray], tag: int) -> int:
    """Write a sidecar and flush it to disk; returns its size in bytes."""
    directory, at = [], 0
    for name, array in arrays.items():
        directory.append({"name": name, "type": array.dtype.str, "size": int(array.size), "at": at})
        at += _aligned(array.nbytes)
    text = json.dumps(directory).encode()
    body = _aligned(_HEADER.itemsize + len(text))
    whole = np.zeros(body + at, np.uint8)
    header = _header_of(whole)
    header["magic"], header["directory_bytes"], header["tag"] = _MAGIC, len(text), tag
    whole[_HEADER.itemsize : _HEADER.itemsize + len(text)] = np.frombuffer(text, np.uint8)
    for entry, array in zip(directory, arrays.values(), strict=True):
        start = body + int(entry["at"])
        whole[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    header["checksum"] = _checksum(address(whole), whole.size)
    with open_new(path) as file:
        file.write(whole.data)
        file.sync()
    return whole.size


def read_arrays(fd: int, path: Path, shard: int | None, size: int, tag: int) -> dict[str, AnyArray]:
    """Read and check the arrays of an open sidecar.

    Raises `DamagedRelation`, which names `path` and `shard`, unless the file has `size` bytes, a matching checksum and the `tag`.
    """
    there = os.fstat(fd).st_size
    if there != size:  # before memory is asked for: a damaged file may have any size
        raise DamagedRelation(path, f"it has {there:,} bytes where {size:,} were written", shard=shard)
    return read_arrays_into(np.empty(size, np.uint8), fd, path, shard, size, tag)


def read_arrays_into(whole: UInt8s, fd: int, path: Path, shard: int | None, size: int, tag: int) -> dict[str, AnyArray]:
    """Read and check a sidecar as `read_arrays` does, but into `whole`, which the arrays returned are views of."""
    done = read_into(fd, whole.data, 0, path)
    if done < whole.size:
        raise DamagedRelation(path, f"it ends after {done:,} bytes", shard=shard)
    if whole.size != size:
        raise DamagedRelation(path, f"it has {whole.size:,} bytes where {size:,} were written", shard=shard)
    whole_lines = whole.size > 0 and whole.size % _ALIGNMENT == 0  # the checksum reads no less
    header = _header_of(whole) if whole_lines else None
    if header is None or int(header["magic"]) != _MAGIC:
        raise DamagedRelation(path, "it is not a Headrace file", shard=shard)
    if int(header["checksum"]) != _checksum(address(whole), whole.size):
        raise DamagedRelation(path, "its checksum does not match its bytes", shard=shard)
    if int(header["tag"]) != tag:
        raise DamagedRelation(path, "it is a file of another shard, version or relation", shard=shard)
    try:
        return arrays_in(whole)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DamagedRelation(path, "its directory of arrays cannot be read", shard=shard) from error


def arrays_bytes(fd: int, path: Path, shard: int) -> int:
    """Return the bytes of the arrays of an open sidecar, by its directory; the arrays are neither read nor checked."""
    try:
        header = _header_of(np.frombuffer(read_at(fd, _HEADER.itemsize, 0, path), np.uint8))
        length = min(int(header["directory_bytes"]), _MOST_DIRECTORY)
        directory = json.loads(read_at(fd, length, _HEADER.itemsize, path))
        sizes = [np.dtype(entry["type"]).itemsize * int(entry["size"]) for entry in directory]
        if min(sizes, default=0) < 0 or sum(sizes) > os.fstat(fd).st_size:
            raise ValueError("arrays lie outside of the file")
        return sum(sizes)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise DamagedRelation(path, "its directory of arrays cannot be read", shard=shard) from error


def arrays_in(whole: UInt8s) -> dict[str, AnyArray]:
    """Return views of the arrays of a sidecar that was read and checked before."""
    length = int(_header_of(whole)["directory_bytes"])
    body = _aligned(_HEADER.itemsize + length)
    arrays = {}
    for entry in json.loads(whole[_HEADER.itemsize : _HEADER.itemsize + length].tobytes()):
        type_, start, size = np.dtype(entry["type"]), body + entry["at"], entry["size"]
        stop = start + size * type_.itemsize
        if not body <= start <= stop <= whole.size:
            raise ValueError(f"array {entry['name']!r} lies outside of the file")
        arrays[entry["name"]] = whole[start:stop].view(type_)
    return arrays


def _header_of(whole: UInt8s) -> np.void:
    """Return the header as a record over the file's own bytes: assigning to a field changes the file."""
    header: np.void = whole[: _HEADER.itemsize].view(_HEADER)[0]
    return header


def _aligned(nbytes: int) -> int:
    """Round a size up to the alignment of arrays."""
    return (nbytes + _ALIGNMENT - 1) & -_ALIGNMENT
