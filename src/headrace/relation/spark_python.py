"""Whether the Python that Spark starts for its workers on this machine has Headrace."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from typing import Any

from headrace.errors import BadInput

_FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec('headrace') is None)"
_PATIENCE = 20.0  # seconds for a Python to start


def check_worker_python(session: Any) -> None:
    """Refuse a session on this machine whose workers run a Python without Headrace.

    Spark runs ``python3`` unless it is told otherwise. Of a program that was started as ``.venv/bin/python job.py`` that is the
    system's, and the first task ends in pages of Java with "No module named 'pyarrow'" among them. On a cluster the executors'
    machines are others, and nothing is known of their Python here.
    """
    try:
        context = session.sparkContext
        python, local = context.pythonExec, context.master.startswith("local")
        shipped = bool(context._python_includes)  # packages that workers get from the driver: no public name tells
    except Exception:  # Spark Connect has no context
        return
    if not local or shipped or shutil.which(python) == sys.executable or _has_headrace(python):
        return
    raise BadInput(
        f"Spark's Python workers run {shutil.which(python)}, which has no headrace; the driver runs {sys.executable}. Set the"
        f" environment variable PYSPARK_PYTHON={sys.executable} before the session is made, or activate the virtual environment"
    )


@cache
def _has_headrace(python: str) -> bool:
    found = shutil.which(python)
    if found is None:
        return True  # Spark itself says that there is no such program
    try:
        return subprocess.run([found, "-c", _FIND], capture_output=True, timeout=_PATIENCE).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return True
