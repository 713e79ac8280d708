"""`make soak` in small: two are killed at random, where it kills fifty; the relation changes, and the warehouse is whole."""

import os
import secrets

import pytest

from soak.chaos import chaos

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]


def test_oracle_the_warehouse_is_whole_whoever_is_killed(tmp_path):
    seed = int(os.environ.get("HEADRACE_SEED", secrets.randbits(32)))
    print(f"HEADRACE_SEED={seed}")  # noqa: T201 - shown if the test fails
    found = chaos(tmp_path / "chaos", 2, seed, files=6)
    assert found.faults == [], f"HEADRACE_SEED={seed} {found.kills}"
    assert found.kills.total() >= 2
    assert found.versions > 3, "the relation did not change"
