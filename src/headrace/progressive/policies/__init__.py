"""Flush policies: which tuples go to disk when memory is full. One file a policy; the driver is beside them. [PQP] ch. 2 to 6"""

from __future__ import annotations

from headrace.errors import choice
from headrace.progressive.policies.all_flush import AllFlush
from headrace.progressive.policies.base import FlushPolicy, TupleFlushPolicy
from headrace.progressive.policies.foresight import Foresight
from headrace.progressive.policies.hmj import HMJ
from headrace.progressive.policies.la import LA
from headrace.progressive.policies.random import Random
from headrace.progressive.policies.rpj import RPJ
from headrace.progressive.policies.rrpj import RRPJ, RRPJF, AmortisedRRPJ
from headrace.progressive.policies.stats import PartitionStats, TupleStats
from headrace.progressive.policies.xjoin import XJoin

__all__ = [
    "HMJ",
    "LA",
    "POLICIES",
    "RPJ",
    "RRPJ",
    "RRPJF",
    "AllFlush",
    "AmortisedRRPJ",
    "FlushPolicy",
    "Foresight",
    "PartitionStats",
    "Random",
    "TupleFlushPolicy",
    "TupleStats",
    "XJoin",
    "policy_of",
]

#: The names that `flush="..."` takes. Each policy is made with its defaults; for other settings give an object.
POLICIES: dict[str, type[FlushPolicy]] = {
    "xjoin": XJoin,
    "hmj": HMJ,
    "random": Random,
    "rpj": RPJ,
    "la": LA,
    "rrpj": RRPJ,
    "rrpj-amortised": AmortisedRRPJ,
    "rrpj-f": RRPJF,
    "allflush": AllFlush,
    "foresight": Foresight,
}


def policy_of(flush: str | FlushPolicy) -> FlushPolicy:
    """Return the policy of a name, or a policy object as it is. A wrong name is refused, and the right ones are listed.

    Example:
        >>> policy_of("rrpj-f").per_tuple
        True
    """
    if isinstance(flush, FlushPolicy):
        return flush
    return POLICIES[choice("flush", flush, POLICIES)]()
