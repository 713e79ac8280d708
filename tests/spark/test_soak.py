"""`make soak` in small, with Spark: a few are killed at random, two of them Spark's; the relation changes, and all is whole."""

import os
import secrets

import pytest

from soak.chaos import chaos

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]


def test_oracle_the_warehouse_is_whole_whoever_is_killed(tmp_path):
    seed = int(os.environ.get("HEADRACE_SEED", secrets.randbits(32)))
    print(f"HEADRACE_SEED={seed}")  # noqa: T201 - shown if the test fails
    found = chaos(tmp_path / "chaos", 7, seed, queries=("sales",), files=2, long=0)
    assert found.faults == [], f"HEADRACE_SEED={seed} {found.kills}"
    assert (found.lost, found.doubled) == (0, 0)
    assert found.kills.total() >= 7
    assert found.versions > 3, "the relation did not change"
