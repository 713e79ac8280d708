"""Stream ⋈ relation: one algorithm a file, one driver."""

from __future__ import annotations

from typing import Any

from headrace.conditions import Condition, On, parse_on
from headrace.errors import BadInput
from headrace.relation import Relation
from headrace.semistream.adaptive.conditional import ConditionalJoin
from headrace.semistream.adaptive.join import AdaptiveJoin
from headrace.semistream.hybrid.hybridjoin import HybridJoin
from headrace.semistream.hybrid.xhybridjoin import XHybridJoin
from headrace.semistream.inl import IndexNestedLoop
from headrace.semistream.mesh.ameshjoin import AMeshJoin
from headrace.semistream.mesh.meshjoin import MeshJoin
from headrace.semistream.mesh.rmeshjoin import RMeshJoin
from headrace.semistream.ssij.join import SSIJ

__all__ = [
    "AdaptiveJoin",
    "AMeshJoin",
    "ConditionalJoin",
    "HybridJoin",
    "IndexNestedLoop",
    "MeshJoin",
    "RMeshJoin",
    "SSIJ",
    "XHybridJoin",
]

#: Operators by the names that `enrich(algorithm=...)`, the cost models and the command line know them by.
ALGORITHMS: dict[str, Any] = {
    "adaptive": AdaptiveJoin,
    "ameshjoin": AMeshJoin,
    "hybridjoin": HybridJoin,
    "meshjoin": MeshJoin,
    "inl": IndexNestedLoop,
    "rmeshjoin": RMeshJoin,
    "ssij": SSIJ,
    "xhybridjoin": XHybridJoin,
}

#: Those that take conditions beyond equality. AdaptiveJoin takes them beside an equality: see ConditionalJoin.
CONDITIONAL = ("adaptive", "ameshjoin", "meshjoin", "rmeshjoin", "ssij")


def algorithm_for(algorithm: str, on: On | None, condition: Condition | None, relation: Relation) -> str:
    """Return the algorithm that a word stands for: where there is no key to look up, "auto" is a join that scans the relation."""
    if on is None and condition is not None and algorithm == "adaptive":
        return "meshjoin"
    if algorithm != "auto" or (on is None and condition is None):
        return algorithm
    looked_up = on is not None and sorted(parse_on(on).right) == sorted(relation.key)
    return algorithm if looked_up or _has_unknown(on, relation) else "meshjoin"


def _has_unknown(on: On | None, relation: Relation) -> bool:
    """Whether a column to join on is not of the relation: every join refuses it, and the one that is used by default shall."""
    return on is not None and any(name not in relation.schema.names for name in parse_on(on).right)


def check_condition(algorithm: str, condition: Condition | None) -> None:
    """Refuse an algorithm that does not take conditions beyond equality."""
    if condition is not None and algorithm not in ("auto", *CONDITIONAL):
        raise BadInput(
            f"algorithm={algorithm!r} joins by equality of the key alone; for condition={condition} choose one of"
            f" {', '.join(CONDITIONAL)}"
        )
