"""The budget of a progressive join against the process's own memory, in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
import numpy as np, pyarrow as pa
import headrace as hr
from headrace.progressive import ProgressiveJoin

def resident(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

rng = np.random.default_rng(5)
BOX = ("xmin", "ymin", "xmax", "ymax")
def batch(rows, side, first):
    if workload == "boxes":
        low = rng.random((rows, 2))
        corners = np.hstack([low, low + 0.002 * rng.random((rows, 2))])
        return pa.record_batch({**dict(zip(BOX, corners.T.copy())), side: np.arange(first, first + rows)})
    if workload == "vectors":
        return pa.record_batch({**{c: rng.random(rows) for c in "xyz"}, side: np.arange(first, first + rows)})
    keys = rng.integers(0, 1_000_000, rows)
    if workload == "giant":
        keys = np.where(rng.random(rows) < 0.002, 7, keys)
    columns = {"k": keys, side: np.arange(first, first + rows), "more": rng.random(rows)}
    if workload == "text":
        columns["k"] = pa.array(np.char.add("the key of thing ", keys.astype("U7")))
        columns["note"] = pa.array(np.char.add("some words of the thing ", keys.astype("U7")))
    return pa.record_batch(columns)

workload, flush, memory = sys.argv[1], sys.argv[2], int(sys.argv[3])
condition = {"boxes": hr.intersects(BOX), "vectors": hr.within(tuple("xyz"), eps=0.007)}.get(workload, hr.equal("k"))
warm = ProgressiveJoin(condition, memory="4MiB", flush=flush)
for side in ("left", "right") * 3:
    for out in warm.insert(side, batch(8000, side, 0)):
        pass
for out in warm.finish():
    pass
del warm
batches = [(side, batch(50_000, side, at)) for at in range(0, 400_000, 50_000) for side in ("left", "right")]
pa.default_memory_pool().release_unused()
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before, code = resident("VmHWM"), resident("RssFile")
class EvenClock:  # every look takes ten milliseconds: what is done while nothing comes does not hang on how busy the machine is
    looks = 0
    def now(self):
        self.looks += 1
        return self.looks / 100
op = ProgressiveJoin(condition, memory=memory, flush=flush, clock=EvenClock())
rows = 0
for i, (side, some) in enumerate(batches):
    for out in op.insert(side, some):
        rows += out.num_rows
    if i % 7 == 6:
        for out in op.idle(0.05):
            rows += out.num_rows
for out in op.finish():
    rows += out.num_rows
op.stats.check()
code = max(0, resident("RssFile") - code)
growth = resident("VmHWM") - before - code
print(json.dumps({"growth": growth, "rows": rows, "peak": op.budget.peak, "flushes": op.stats.flushes}))
"""

# Arrow's pool gives back what it was given a moment later, by the clock: some 2 MiB more or less, as the machine is busy or not.
# Here it does so at once. And code that is read from disk for the first time is no memory of the join's: 1.4 MiB of it.
AT_ONCE = {**os.environ, "MIMALLOC_PURGE_DELAY": "0"}


@pytest.mark.parametrize(
    ("workload", "flush"),
    [("plain", "rrpj"), ("text", "rrpj"), ("giant", "xjoin"), ("boxes", "rrpj-f"), ("vectors", "hmj")],
)
def test_contract_the_process_grows_by_no_more_than_the_budget_and_a_sixth(workload: str, flush: str) -> None:
    memory = 24 << 20
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, workload, flush, str(memory)],
        capture_output=True, text=True, timeout=500, check=False, env=AT_ONCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["rows"] > 100_000
    assert facts["flushes"] > 1
    assert facts["peak"] <= memory
    assert facts["growth"] <= 1.15 * memory, f"{facts['growth'] / 2**20:.1f} MiB for a budget of 24 MiB"
