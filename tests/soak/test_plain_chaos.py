"""`make soak KILLS=…` in small and without Spark: a few kills of each kind; and the harness fails where something is wrong."""

import os
import secrets

import pytest

from soak.plain_process import plain_chaos
from soak.summary import Summary
from soak.watched import HarnessFault, Watched

pytestmark = pytest.mark.slow

SHORT = {"keys": 600, "batches": 8, "stop": 0.5, "full": 1.0, "jump": 0.3, "extraordinary": 1}


def test_oracle_nothing_is_lost_or_doubled_whoever_is_killed(tmp_path):
    seed = int(os.environ.get("HEADRACE_SEED", secrets.randbits(32)))
    print(f"HEADRACE_SEED={seed}")  # noqa: T201 - shown if the test fails
    found = plain_chaos(tmp_path, 12, seed, **SHORT)
    assert found.faults == [], f"HEADRACE_SEED={seed}"
    assert (found.lost, found.doubled) == (0, 0)
    assert found.rows > 2000
    assert found.versions > 10
    kinds = {kind.split(",")[0] for kind in found.kills}
    assert kinds == {"writer", "overwriter", "query without Spark"}
    done = set(found.events) | set(found.skipped)
    for event in (
        "SIGSTOP for",
        "two processes",
        "stopped for a moment",
        "clock a day forward",
        "clock a day back",
        "disk full",
    ):
        assert any(name.startswith(event) for name in done), event
    if not found.skipped:
        assert found.refused["disk full"] > 0, "nobody noticed that the disk was full"


def test_a_row_that_the_sink_drops_is_found(tmp_path):
    found = plain_chaos(tmp_path, 1, 3, **SHORT | {"extraordinary": 0}, drop=True)
    assert found.lost == 1
    assert not found.whole
    assert "Verdict(rows=1200, lost=1, doubled=0" in found.faults[0]


def test_a_product_that_the_relation_lacks_is_found(tmp_path):
    found = plain_chaos(tmp_path, 1, 3, **SHORT | {"extraordinary": 0}, lost_products=True)
    assert "1 products lost" in found.faults[0]


def test_a_dead_thread_of_the_harness_is_a_fault():
    watched = Watched(limit=60.0)
    watched.start("reader", lambda: [].pop()).join()
    with pytest.raises(
        HarnessFault, match=r"thread 'reader' of the harness died:\n(?s:.*)IndexError: pop from empty list"
    ):
        watched.sleep(1.0)


def test_a_run_that_takes_longer_than_its_limit_hangs():
    with pytest.raises(HarnessFault, match="not done after 0s, its limit"):
        Watched(limit=0.0).check()


def test_a_summary_survives_its_json_and_says_what_was_lost():
    found = Summary(5, rows=10, lost=1, seconds=61.0)
    found.kills["writer, apply"] += 3
    found.events["disk full for 10 s"] += 1
    again = Summary.of_json(found.as_json())
    assert again == found
    assert not again.whole
    assert again.words().startswith("1 lost, 0 doubled: 3 kills and 1 other events in 1m1s")
    assert "| kill -9: writer, apply | 3 |" in again.table()
