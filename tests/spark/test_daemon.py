"""Workers are forked from a daemon that has imported what they need."""

import subprocess
import sys

import pytest

from headrace.spark import daemon

pytestmark = pytest.mark.spark


def test_a_new_worker_has_imported_everything(spark):
    def modules(batches):
        """What this worker had imported when its task began, and what its parent is."""
        import os
        import sys
        from pathlib import Path

        import pyarrow as pa

        there = [
            name
            for name in ("headrace.spark.worker", "headrace.spark.pair_step", "numba", "pandas")
            if name in sys.modules
        ]
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
        for _ in batches:
            yield pa.record_batch({"there": [there], "parent": [parent[-3].decode()]})

    seen = spark.range(2, numPartitions=2).mapInArrow(modules, "there array<string>, parent string").collect()
    assert {row["parent"] for row in seen} == {"headrace.spark.daemon"}
    assert all(len(row["there"]) == 4 for row in seen), seen


@pytest.mark.parametrize(
    ("module", "imported"), [("pyspark.worker", True), ("pyspark.sql.worker.plan_data_source_read", False)]
)
def test_only_the_daemon_of_workers_imports(module, imported):
    code = "\n".join(
        [
            "import runpy, sys, pyspark.daemon",
            "pyspark.daemon.manager = lambda: print('headrace.spark.worker' in sys.modules)",
            f"sys.argv = ['daemon', {module!r}]",
            f"runpy.run_module({daemon.__name__!r}, run_name='__main__')",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == str(imported)
