"""Stream ⋈ relation: one algorithm a file, one driver."""

from headrace.semistream.adaptive import AdaptiveJoin
from headrace.semistream.ameshjoin import AMeshJoin
from headrace.semistream.meshjoin import MeshJoin
from headrace.semistream.rmeshjoin import RMeshJoin

__all__ = ["AdaptiveJoin", "AMeshJoin", "MeshJoin", "RMeshJoin"]
