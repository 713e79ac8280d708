"""The commands of the page on clusters: that for a standalone cluster runs on one, as the page has it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from soak.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "deploy-on-a-cluster.md").read_text()


@pytest.fixture
def cluster(tmp_path):
    some = Cluster(tmp_path)
    try:
        some.start()
        yield some
    finally:
        some.close()


def test_the_command_for_a_standalone_cluster_runs_the_program_of_the_page(cluster, tmp_path):
    program = re.search(r"^```python\n(# job\.py\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    section = PAGE[PAGE.index("## Standalone") : PAGE.index("## YARN")]
    command = re.search(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "job.py").write_text(program)
    (tmp_path / "shared").mkdir()
    where = {
        "PATH": f"{cluster.home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "MASTER": cluster.master,
        "PYTHON": sys.executable,
        "CORES": "1",
        "HEAP": "512m",
        "SHARED": str(tmp_path / "shared"),
    }
    run = subprocess.run(
        ["bash", "-ec", command],
        cwd=tmp_path,
        env=cluster.environment | where,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert "joined: 2000" in run.stdout
    table = DeltaTable(tmp_path / "shared" / "sales").to_pyarrow_table()
    assert sorted(table["sale"].to_pylist()) == list(range(2000))
    assert all(row["price"] == (row["product_id"] if row["product_id"] < 10_000 else None) for row in table.to_pylist())
