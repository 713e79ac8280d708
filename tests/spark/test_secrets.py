"""A password is in no message, plan, log, file or list of processes, whatever is done with the URL that holds it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "secret_url.py"
CANARY = "cAnArYpAsSwOrD"


def test_a_password_leaves_no_trace(database, tmp_path):
    database.query("CREATE TABLE sales (n int, k int, x xid8 DEFAULT pg_current_xact_id())")
    database.query("CREATE TABLE target (n int PRIMARY KEY, name text)")
    database.query("INSERT INTO sales SELECT g, g % 2 FROM generate_series(1, 100) g")
    url = database.url.replace("headrace@", f"headrace:{CANARY}@")
    assert CANARY in url
    environment = {
        **os.environ,
        "SHOP_URL": url,
        "HEADRACE_STATE": str(tmp_path / "state"),
        "HEADRACE_LOG": "DEBUG",
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("SPARK_LOCAL_DIRS", None)
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("refused:") == 9 and "process:" in done.stdout
    assert "s3a://AKIA:***@bucket/t" in done.stdout  # it was there, and was hidden
    shown = {"stdout": done.stdout, "stderr": done.stderr}
    kept = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any("offsets" in name for name in kept)
    assert any(b"headrace_postgresql" in data for name, data in kept.items() if "events" in name)  # plans, readable
    lines = [f"{name}: {line}" for name, text in shown.items() for line in text.splitlines() if CANARY in line]
    assert not lines, lines[:3]
    assert not [name for name, data in kept.items() if CANARY.encode() in data]
