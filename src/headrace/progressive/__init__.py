"""Stream joined with stream, complete results, in limited memory: one driver, partitionings, flush policies. [PQP] ch. 3-6"""

from headrace.progressive.grids.boxes import BoxGrid
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning import Partitioning
from headrace.progressive.grids.vectors import VectorGrid
from headrace.progressive.join import ProgressiveJoin
from headrace.progressive.policies.arrival_rates import LA, RPJ
from headrace.progressive.policies.by_name import POLICIES, policy_of
from headrace.progressive.policies.flush import (
    HMJ,
    RRPJ,
    RRPJF,
    AllFlush,
    AmortisedRRPJ,
    FlushPolicy,
    Ledger,
    Random,
    Resident,
    XJoin,
)
from headrace.progressive.policies.foresight import Foresight
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
    "Ledger",
    "Partitioning",
    "ProgressiveJoin",
    "ProgressiveStats",
    "Random",
    "Resident",
    "VectorGrid",
    "XJoin",
    "policy_of",
]
