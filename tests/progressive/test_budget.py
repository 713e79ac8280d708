"""The budgets of progressive joins against the process's own memory, in a process of its own."""

import json
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
before = resident("VmHWM")
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
growth = resident("VmHWM") - before
print(json.dumps({"growth": growth, "rows": rows, "peak": op.budget.peak, "flushes": op.stats.flushes}))
"""


@pytest.mark.parametrize(
    ("workload", "flush"),
    [("plain", "rrpj"), ("text", "rrpj"), ("giant", "xjoin"), ("boxes", "rrpj-f"), ("vectors", "hmj")],
)
def test_contract_the_process_grows_by_no_more_than_the_budget_and_a_sixth(workload: str, flush: str) -> None:
    memory = 24 << 20
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, workload, flush, str(memory)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["rows"] > 100_000
    assert facts["flushes"] > 1
    assert facts["peak"] <= memory
    assert facts["growth"] <= 1.15 * memory, f"{facts['growth'] / 2**20:.1f} MiB for a budget of 24 MiB"


# What a Spark worker does: two shards in turn, each with its copy, micro-batch by micro-batch.
LOGGED = """
import json, sys
import numpy as np, pyarrow as pa
import headrace as hr
from headrace.memory import release_freed_memory
from headrace.progressive.grids.partitioning_for import unbounded_partitioning_for
from headrace.progressive.logged.join import LoggedJoin
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.logged.join_spec import JoinSpec
from headrace.progressive.logged.multiway_spec import MultiWaySpec
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.policies import policy_of
from headrace.row_copies import POOL
from headrace.runlog import RunLog
from headrace.spark.pair_step import warm_memory

def resident(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

directory, memory, streams = sys.argv[1], *map(int, sys.argv[2:])
pa.set_memory_pool(POOL)
rng = np.random.default_rng(6)
schemas = tuple(pa.schema({"k": pa.int64(), "t": pa.int64(), side: pa.float64()}) for side in "abc"[:streams])
def rows(many):
    for side in range(streams):
        for n in [10_000] * (many // 10_000) + [many % 10_000]:
            values = rng.integers(0, 200_000, n), rng.integers(0, 1 << 40, n), rng.random(n)
            yield side, pa.RecordBatch.from_arrays([pa.array(v) for v in values], schema=schemas[side])

log, caches, results, flushed = RunLog(directory, "q", "join", shards=2), [], 0, 0
for shard in (0, 1):
    if streams == 2:
        partitioning, ask = unbounded_partitioning_for(hr.equal("k"), 64, None)
        spec = JoinSpec(condition=hr.equal("k"), schemas=schemas, partitioning=partitioning, ask=ask)
    else:
        static = (False,) * streams
        spec = MultiWaySpec(on=("k",) * streams, schemas=schemas, partitions=64, suffix="_", static=static)
    cache = StateCache(Sharding(spec.partitioning, 0, shard), policy_of("rrpj"), warm_memory(memory, 1, 2), schemas)
    caches.append((spec, cache))
for number in range(14):
    if number == 2:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
        before = resident("VmHWM")
    for shard, (spec, cache) in enumerate(caches):
        with log.shard(shard) as held:
            join = LoggedJoin(spec, held, cache, number, idle=0.5)
            for out in join.join(rows(500 if number < 2 else 25_000)):
                results += out.num_rows
            flushed += join.stats.deferred
        release_freed_memory()
print(json.dumps({"growth": resident("VmHWM") - before, "results": results, "deferred": flushed}))
"""


@pytest.mark.parametrize(("memory", "streams"), [(10 << 20, 2), (32 << 20, 2), (24 << 20, 3)])
def test_contract_a_worker_of_a_join_on_spark_grows_by_no_more_than_its_share_and_a_sixth(
    tmp_path, memory: int, streams: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGED, str(tmp_path), str(memory), str(streams)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["results"] > 10_000  # how many are caught up hangs on the time it takes
    assert facts["deferred"] > 100_000, "memory was never short"
    assert memory / 2 < facts["growth"] <= 1.15 * memory, f"{facts['growth'] / 2**20:.1f} of {memory / 2**20:g} MiB"


MULTIWAY = """
import json, sys
import numpy as np, pyarrow as pa
from headrace.progressive import MultiWayJoin
def resident(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024
workload, flush, memory, n = *sys.argv[1:3], *map(int, sys.argv[3:])
rng = np.random.default_rng(5)
def batch(rows, t, first):
    keys = rng.integers(0, 100_000, rows)
    if workload == "giant":
        keys = np.where(rng.random(rows) < 0.0005, 7, keys)
    columns = {"k": keys, f"i{t}": np.arange(first, first + rows), f"more{t}": rng.random(rows)}
    if workload == "text":
        columns["k"] = pa.array(np.char.add("the key of thing ", keys.astype("U7")))
        columns[f"note{t}"] = pa.array(np.char.add("some words of the thing ", keys.astype("U7")))
    return pa.record_batch(columns)
warm = MultiWayJoin("k", n, memory="4MiB", flush=flush)
for t in [*range(n)] * 3:
    for out in warm.insert(t, batch(8000, t, 0)):
        pass
for out in warm.finish():
    pass
del warm
come = [(t, batch(40_000, t, at)) for at in range(0, 160_000, 40_000) for t in range(n)]
pa.default_memory_pool().release_unused()
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = resident("VmHWM")
op = MultiWayJoin("k", n, memory=memory, flush=flush)
rows = 0
for t, some in come:
    for out in op.insert(t, some):
        rows += out.num_rows
for out in op.finish():
    rows += out.num_rows
op.stats.check()
growth = resident("VmHWM") - before
print(json.dumps({"growth": growth, "rows": rows, "peak": op.budget.peak, "flushes": op.stats.flushes}))
"""


@pytest.mark.parametrize(("workload", "flush", "streams"), [("giant", "xjoin", 3), ("text", "rrpj", 4)])
def test_contract_a_multi_way_join_grows_by_no_more_than_the_budget_and_a_sixth(
    workload: str, flush: str, streams: int
) -> None:
    memory = 16 << 20
    done = subprocess.run(
        [sys.executable, "-c", MULTIWAY, workload, flush, str(memory), str(streams)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["rows"] > 100_000
    assert facts["flushes"] > 1
    assert facts["peak"] <= memory
    assert memory / 2 < facts["growth"] <= 1.15 * memory, f"{facts['growth'] / 2**20:.1f} MiB for a budget of 16 MiB"
