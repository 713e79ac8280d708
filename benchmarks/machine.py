"""Where and with what the numbers were taken."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("headrace", "pyarrow", "numpy", "numba", "lmdb", "rocksdict", "duckdb", "polars", "pyspark", "deltalake")


def describe(data_directory: Path) -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "disk": _disk(data_directory),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": _commit(),
        "load": os.getloadavg()[0],
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _disk(path: Path) -> dict[str, Any]:
    """The block device under `path`: its model where readable, and whether it rotates."""
    device = path.stat().st_dev
    node = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    if not (node / "queue").exists():
        node = node.parent  # a partition
    model, rotates = node / "device" / "model", node / "queue" / "rotational"
    return {
        "device": node.name,
        "model": model.read_text().strip() if model.exists() else None,
        "rotational": rotates.read_text().strip() == "1" if rotates.exists() else None,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None
