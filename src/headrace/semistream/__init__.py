"""Stream ⋈ relation: one algorithm a file, one driver."""

from headrace.semistream.adaptive import AdaptiveJoin

__all__ = ["AdaptiveJoin"]
