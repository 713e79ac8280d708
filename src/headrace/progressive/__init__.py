"""Stream joined with stream, complete results, in limited memory: one driver, partitionings, flush policies. [PQP] ch. 3-6"""

from headrace.progressive.arrivals import LA, RPJ
from headrace.progressive.boxes import BoxGrid
from headrace.progressive.flush import (
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
from headrace.progressive.foresight import Foresight
from headrace.progressive.join import ProgressiveJoin
from headrace.progressive.keys import HashPartitioning
from headrace.progressive.partitioning import Partitioning
from headrace.progressive.policies import POLICIES, policy_of
from headrace.progressive.stats import ProgressiveStats
from headrace.progressive.vectors import VectorGrid

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
