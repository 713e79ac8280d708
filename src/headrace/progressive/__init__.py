"""Stream joined with stream, complete results, in limited memory: one driver, partitionings, flush policies. [PQP] ch. 3-6"""

from headrace.progressive.boxes import BoxGrid
from headrace.progressive.flush import RRPJ, FlushPolicy, XJoin
from headrace.progressive.join import ProgressiveJoin
from headrace.progressive.keys import HashPartitioning
from headrace.progressive.partitioning import Partitioning
from headrace.progressive.stats import ProgressiveStats
from headrace.progressive.vectors import VectorGrid

__all__ = [
    "RRPJ",
    "BoxGrid",
    "FlushPolicy",
    "HashPartitioning",
    "Partitioning",
    "ProgressiveJoin",
    "ProgressiveStats",
    "VectorGrid",
    "XJoin",
]
