"""Flush policies by name."""

from __future__ import annotations

from headrace.errors import choice
from headrace.progressive.policies.arrival_rates import LA, RPJ
from headrace.progressive.policies.flush import HMJ, RRPJ, RRPJF, AllFlush, AmortisedRRPJ, FlushPolicy, Random, XJoin
from headrace.progressive.policies.foresight import Foresight

#: What `flush="..."` may be. Each is made with its defaults; for other settings give an object.
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
    """A policy by its name, or as it is. A wrong word is refused, and the right ones are listed.

    Example:
        >>> policy_of("rrpj-f").per_tuple
        True
    """
    if isinstance(flush, FlushPolicy):
        return flush
    return POLICIES[choice("flush", flush, POLICIES)]()
