"""Spark's daemon of Python workers with Headrace in it: ``spark.python.daemon.module`` = ``headrace.spark.daemon``.

Spark forks its Python workers from a daemon, and each imports what its tasks need. For ours that is Arrow, Numba and kernels: a
second or two, and some 140 MiB that every worker has for itself. Here the daemon imports them, and workers share its pages.
"""

from __future__ import annotations

import gc
import importlib
import sys

import numpy as np
import pyarrow as pa
from pyspark.daemon import manager

_WORKER = "pyspark.worker"
_NEEDED = (_WORKER, "headrace.spark.pair_step", "headrace.spark.enrich_step", "headrace.spark.delta.files")


def main() -> None:
    """Import, then do what Spark's daemon does."""
    if sys.argv[1:] == [_WORKER]:  # Spark has daemons for other things too, such as to plan a source
        for name in _NEEDED:
            importlib.import_module(name)
        pa.array(np.zeros(1))  # Arrow's first array brings pandas
        gc.collect()
        gc.freeze()  # or the first collection in a worker would write to all these pages, and have them copied
    manager()


if __name__ == "__main__":
    main()
