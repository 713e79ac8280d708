"""Joins of two or more streams with complete results in limited memory: drivers, partitionings, flush policies. [PQP] ch. 3-7"""

from headrace.progressive.grids.boxes import BoxGrid
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.lsh import VectorLsh
from headrace.progressive.grids.partitioning import Partitioning
from headrace.progressive.grids.pivots import VectorPivots
from headrace.progressive.grids.vectors import VectorGrid
from headrace.progressive.join import ProgressiveJoin
from headrace.progressive.multiway import MultiWayJoin, MultiWayStats
from headrace.progressive.policies import (
    HMJ,
    LA,
    POLICIES,
    RPJ,
    RRPJ,
    RRPJF,
    AllFlush,
    AmortisedRRPJ,
    FlushPolicy,
    Foresight,
    PartitionStats,
    Random,
    TupleFlushPolicy,
    TupleStats,
    XJoin,
    policy_of,
)
from headrace.progressive.stats import ProgressiveStats

__all__ = [
    "HMJ",
    "LA",
    "POLICIES",
    "RPJ",
    "RRPJ",
    "RRPJF",
    "AllFlush",
    "AmortisedRRPJ",
    "BoxGrid",
    "FlushPolicy",
    "Foresight",
    "HashPartitioning",
    "MultiWayJoin",
    "MultiWayStats",
    "PartitionStats",
    "Partitioning",
    "ProgressiveJoin",
    "ProgressiveStats",
    "Random",
    "TupleFlushPolicy",
    "TupleStats",
    "VectorGrid",
    "VectorLsh",
    "VectorPivots",
    "XJoin",
    "policy_of",
]
