"""Stream ⋈ relation: one algorithm a file, one driver."""

from typing import Any

from headrace.semistream.adaptive import AdaptiveJoin
from headrace.semistream.ameshjoin import AMeshJoin
from headrace.semistream.conditional import ConditionalJoin
from headrace.semistream.hybridjoin import HybridJoin
from headrace.semistream.inl import IndexNestedLoop
from headrace.semistream.meshjoin import MeshJoin
from headrace.semistream.rmeshjoin import RMeshJoin
from headrace.semistream.ssij import SSIJ
from headrace.semistream.xhybridjoin import XHybridJoin

__all__ = [
    "AdaptiveJoin", "AMeshJoin", "ConditionalJoin", "HybridJoin", "IndexNestedLoop", "MeshJoin", "RMeshJoin", "SSIJ",
    "XHybridJoin",
]  # fmt: skip

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
