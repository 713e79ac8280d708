"""Stream ⋈ relation: one algorithm a file, one driver."""

from typing import Any

from headrace.conditions import Condition
from headrace.errors import BadInput
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


def check_condition(algorithm: str, condition: Condition | None) -> None:
    """Refuse an algorithm that does not take conditions beyond equality."""
    if condition is not None and algorithm not in ("auto", *CONDITIONAL):
        raise BadInput(
            f"algorithm={algorithm!r} joins by equality of the key alone; for condition={condition} choose one of"
            f" {', '.join(CONDITIONAL)}"
        )
