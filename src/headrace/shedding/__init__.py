"""Load shedding: the choice of tuples to drop when the stream is too fast for the join. [MESH] §4"""

from headrace.shedding.frequencies import KeyFrequencies
from headrace.shedding.offline import OfflineOptimum, opt_offline_shed
from headrace.shedding.row_hashes import row_hashes
from headrace.shedding.shedder import Shedder, ShedStats, effective_rate
from headrace.shedding.strategies import (
    ALL,
    STRATEGIES,
    ClusterSampling,
    Cut,
    KeepW,
    SampleW,
    Strategy,
    TopW,
    strategy_for,
)

__all__ = [
    "ALL",
    "STRATEGIES",
    "ClusterSampling",
    "Cut",
    "KeepW",
    "KeyFrequencies",
    "OfflineOptimum",
    "SampleW",
    "ShedStats",
    "Shedder",
    "Strategy",
    "TopW",
    "effective_rate",
    "opt_offline_shed",
    "row_hashes",
    "strategy_for",
]
