"""Headrace joins fast streams with tables that do not fit in memory, inside a budget you set.

Names are loaded when first used, so ``import headrace`` costs nothing.

Example:
    >>> import headrace as hr
    >>> hr.equal("k")
    Equal(left=('k',), right=('k',))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.conditions import all_of, band, between, compare, equal, intersects, within
    from headrace.errors import (
        BadInput,
        DamagedLog,
        DamagedRelation,
        HeadraceError,
        MemoryRefused,
        NewerFormat,
        NotARelation,
        OtherLog,
        RelationError,
        RunLogError,
        UnfinishedRelation,
        UnsupportedType,
        VersionConflict,
        VersionGone,
    )
    from headrace.memory import MemoryBudget
    from headrace.relation import Relation
    from headrace.runlog import RunLog
    from headrace.spark.enrich import enrich
    from headrace.spark.load import load
    from headrace.spark.progress import progress
    from headrace.spark.remember import finish
    from headrace.spark.replay import replay
    from headrace.spark.shed import Shedding

__version__ = "0.1.0"

__all__ = [
    "BadInput",
    "DamagedLog",
    "DamagedRelation",
    "HeadraceError",
    "MemoryBudget",
    "MemoryRefused",
    "NewerFormat",
    "NotARelation",
    "OtherLog",
    "Relation",
    "RelationError",
    "RunLog",
    "RunLogError",
    "Shedding",
    "UnfinishedRelation",
    "UnsupportedType",
    "VersionConflict",
    "VersionGone",
    "__version__",
    "all_of",
    "band",
    "between",
    "compare",
    "enrich",
    "equal",
    "finish",
    "intersects",
    "load",
    "progress",
    "replay",
    "within",
]

_HOME = {
    "Relation": "headrace.relation",
    "MemoryBudget": "headrace.memory",
    "RunLog": "headrace.runlog",
    "enrich": "headrace.spark.enrich",
    "finish": "headrace.spark.remember",
    "load": "headrace.spark.load",
    "progress": "headrace.spark.progress",
    "replay": "headrace.spark.replay",
    "Shedding": "headrace.spark.shed",
}
_CONDITIONS = ("all_of", "band", "between", "compare", "equal", "intersects", "within")
_HOME |= dict.fromkeys(_CONDITIONS, "headrace.conditions")
_HOME |= {name: "headrace.errors" for name in __all__ if name not in _HOME and name != "__version__"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
