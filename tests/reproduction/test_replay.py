"""A replay on counts gives what the join gives, and the check over many streams holds when it should."""

from functools import partial

import numpy as np
import pytest

from headrace.progressive import RRPJ, AmortisedRRPJ, Foresight, PartitionStats, XJoin
from reproduction import pqp_4
from reproduction.paired import Leads
from reproduction.pqp import GAP, course
from reproduction.replay import Told, Tuples, replay


def one_key_a_partition(tuples):
    rng = np.random.default_rng(7)
    partition = rng.choice(8, tuples, p=pqp_4.zipf(8, 1.0)) ^ (np.arange(tuples) // 500 % 8)  # changes
    return pqp_4.streams_of(rng.integers(0, 2, tuples), partition, np.zeros(tuples, int), 1, 8)


@pytest.mark.parametrize("policy", [RRPJ, partial(AmortisedRRPJ, 0.1, 0.2), partial(RRPJ, 3), Foresight])
def test_replay_is_the_join(policy):
    # More tuples come at a time than are flushed.
    setting = pqp_4.setting_of(partial(one_key_a_partition, 4_000), 8, chunks=50)
    assert replay(Tuples.of(setting), policy()) == course(setting, policy()).results[-1] / (4_000 * GAP)


def test_replay_with_many_keys_is_nearly_the_join():
    setting = pqp_4.setting_of(partial(pqp_4.changing, 32, 0.01), chunks=200)
    both = replay(Tuples.of(setting), RRPJ()), course(setting, RRPJ()).results[-1] / (20_000 * GAP)
    assert both[0] == pytest.approx(both[1], rel=0.005)


def test_replay_refuses_policies_it_does_not_know():
    with pytest.raises(ValueError, match="XJoin does not flush the oldest"):
        replay(Tuples.of(pqp_4.setting_of(partial(one_key_a_partition, 100), 8)), XJoin())


def test_leads_by_standard_errors():
    curves = {"a": [(1, [10.0, 20.0, 30.0])], "b": [(1, [11.0, 20.0, 31.0])], "c": [(1, [9.0, 19.0, 29.0])]}
    assert Leads("a", ("c",)).look(curves).holds
    # b is 0.67 ahead on average, 0.33 is the standard error.
    assert not Leads("a", ("b", "c")).look(curves).holds and not Leads("a", ("b", "c"), 1.9).look(curves).holds
    assert Leads("a", ("b", "c"), 2.1).look(curves).holds
    assert "1: -3.23% (error 1.61%)" in Leads("a", ("b", "c")).look(curves).found
    with pytest.raises(LookupError, match="no points of d"):
        Leads("a", ("d",)).look(curves)


def test_told_knows_the_phase():
    policy, stats = Told(np.array([[0.9, 0.1], [0.2, 0.8]]), phase=10), PartitionStats.empty(2)
    policy.arrive(0, None, np.zeros(10, int))
    np.testing.assert_array_equal(policy.scores(stats), [[0.9, 0.1]] * 2)
    policy.arrive(1, None, np.zeros(1, int))
    np.testing.assert_array_equal(policy.scores(stats), [[0.2, 0.8]] * 2)


def test_told_has_the_order_that_streams_have():
    tuples = Tuples.of(pqp_4.setting_of(partial(pqp_4.changing, 32, 0.02, 5)))  # 640 tuples a phase
    policy = pqp_4.told_of(32, 0.02, 5)
    for phase in range(3):
        came = np.bincount(tuples.partition[640 * phase : 640 * (phase + 1)], minlength=pqp_4.PARTITIONS)
        assert policy.chances[phase].argmax() == came.argmax()
        np.testing.assert_allclose(came / 640, policy.chances[phase], atol=0.06)
