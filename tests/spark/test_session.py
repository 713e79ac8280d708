"""The Spark that a command starts for itself."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, stat, sys
from pathlib import Path
from headrace.spark.session import own_session, quiet_settings

log = Path(sys.argv[1])
secret = {"spark.hadoop.fs.s3a.secret.key": "hunter2-by-name", "spark.some": "hunter2-by-origin"}
settings = {**quiet_settings("session", "local[1]"), "spark.plain": "seen-by-all", **secret}
with own_session(log, settings, private=["spark.some"]) as spark:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if int(path.parent.name) != os.getpid():  # this program itself has all of them in its own line
                lines.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            pass
    found = {
        "shown": [word for word in ("seen-by-all", "by-name", "by-origin") if any(word in line for line in lines)],
        "set": {name: spark.conf.get(name) for name in secret},
        "logged": "hunter2" in log.read_text(errors="replace"),
        "mode": stat.S_IMODE(log.stat().st_mode),
    }
print(json.dumps(found))
"""


@pytest.mark.slow
def test_settings_that_are_secret_reach_spark_and_no_list_of_processes_or_log(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "spark.log"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "shown": ["seen-by-all"],
        "set": {"spark.hadoop.fs.s3a.secret.key": "hunter2-by-name", "spark.some": "hunter2-by-origin"},
        "logged": False,
        "mode": 0o600,
    }
