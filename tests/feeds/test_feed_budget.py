"""The budget of a query over feeds against the process's own memory, in a process of its own."""

import json
import subprocess
import sys

SCRIPT = """
import json
from benchmarks.feeds.desk import joined
from benchmarks.process import peak_rss, reset_peak, rss

joined(8_000, 4 << 20)
reset_peak()
before = rss()
found = joined(100_000, 16 << 20)
print(json.dumps({**found, "growth": peak_rss() - before}))
"""


def test_contract_the_process_grows_by_no_more_than_the_budget_and_a_sixth():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["results"] == 50_000 and found["spilled"] > 20_000
    assert found["peak"] <= 16 << 20
    assert found["growth"] <= 1.15 * (16 << 20), f"{found['growth'] / 2**20:.1f} MiB for a budget of 16 MiB"
