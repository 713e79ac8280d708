"""What the kernel knows about this process: resident memory, its peak, bytes read from disk."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")


def rss() -> int:
    """Resident bytes now: anonymous, file-backed and shared memory."""
    return _status("VmRSS")


def peak_rss() -> int:
    """The largest resident size since the last `reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def bytes_read() -> int:
    """Bytes this process made the disk deliver, by any path: direct, buffered or mapped."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"{_STATUS} has no {field}")
