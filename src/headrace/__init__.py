"""Headrace joins fast streams with tables that do not fit in memory, inside a memory budget that you set.

Names are imported when first used, so ``import headrace`` loads neither Arrow nor Spark.

Example:
    >>> import headrace as hr
    >>> hr.equal("k")
    Equal(left=('k',), right=('k',))
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.conditions import (
        all_of,
        band,
        between,
        compare,
        edit_distance,
        equal,
        intersects,
        jaccard,
        predicate,
        within,
    )
    from headrace.errors import (
        BadInput,
        DamagedLog,
        DamagedRelation,
        FeedRefused,
        FeedUnavailable,
        FileFault,
        HeadraceError,
        IllFormed,
        MemoryRefused,
        MissingExtra,
        NewerFormat,
        NotAFeed,
        NotARelation,
        OtherLog,
        OutsideFailure,
        RelationError,
        RelationReplaced,
        RunLogError,
        SpillError,
        UnfinishedRelation,
        UnsupportedType,
        VersionConflict,
        VersionGone,
    )
    from headrace.etl.duplicates import find_duplicates
    from headrace.etl.maintain import maintain
    from headrace.etl.snapshot import snapshot_diff
    from headrace.etl.surrogate import assign_surrogate_keys
    from headrace.feeds.query import sql
    from headrace.feeds.spark.source import register_sources
    from headrace.feeds.sql.mistakes import BadQuery
    from headrace.memory import MemoryBudget
    from headrace.pipeline.document import BadPipeline
    from headrace.pipeline.read import read_pipeline
    from headrace.relation import Relation
    from headrace.relation.repair import repair
    from headrace.relation.scrub import verify
    from headrace.runlog import RunLog
    from headrace.sources.delta import delta
    from headrace.sources.refresh import refresh
    from headrace.sources.tables import postgresql
    from headrace.spark.defer import Defer
    from headrace.spark.delta.load import load
    from headrace.spark.enrich import enrich
    from headrace.spark.estimate import estimate
    from headrace.spark.finish import finish
    from headrace.spark.multiway_join import multiway_join
    from headrace.spark.postgresql.sink import load_postgresql
    from headrace.spark.postgresql.source import read_postgresql, stream_postgresql
    from headrace.spark.progress import progress
    from headrace.spark.progressive_join import progressive_join
    from headrace.spark.replay import replay
    from headrace.spark.sample import sample
    from headrace.spark.shed import Shedding
    from headrace.spark.shed_estimate import estimate_shed
    from headrace.spark.tuning import tune_session
    from headrace.spark.twig_join import twig_join
    from headrace.spark.window_join import approximate_join, window_join
    from headrace.spark.xml_fragments import xml_fragments
    from headrace.spark.xquery import xquery
    from headrace.windows import rows, time

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
if os.environ.get("HEADRACE_LOG"):  # "INFO" or "DEBUG": also for workers of Spark, which have no other place to say it
    _to_stderr = logging.StreamHandler()
    _to_stderr.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger(__name__).addHandler(_to_stderr)
    logging.getLogger(__name__).setLevel(
        logging.getLevelNamesMapping().get(os.environ["HEADRACE_LOG"].upper(), logging.INFO)
    )

__all__ = [
    "BadInput",
    "BadPipeline",
    "BadQuery",
    "DamagedLog",
    "DamagedRelation",
    "Defer",
    "FeedRefused",
    "FeedUnavailable",
    "FileFault",
    "HeadraceError",
    "IllFormed",
    "MemoryBudget",
    "MemoryRefused",
    "MissingExtra",
    "NewerFormat",
    "NotAFeed",
    "NotARelation",
    "OtherLog",
    "OutsideFailure",
    "Relation",
    "RelationError",
    "RelationReplaced",
    "RunLog",
    "RunLogError",
    "SpillError",
    "Shedding",
    "UnfinishedRelation",
    "UnsupportedType",
    "VersionConflict",
    "VersionGone",
    "__version__",
    "all_of",
    "approximate_join",
    "assign_surrogate_keys",
    "band",
    "between",
    "compare",
    "delta",
    "edit_distance",
    "enrich",
    "equal",
    "estimate",
    "estimate_shed",
    "finish",
    "find_duplicates",
    "intersects",
    "jaccard",
    "load",
    "load_postgresql",
    "maintain",
    "multiway_join",
    "postgresql",
    "predicate",
    "progress",
    "progressive_join",
    "read_pipeline",
    "read_postgresql",
    "refresh",
    "register_sources",
    "repair",
    "snapshot_diff",
    "sql",
    "stream_postgresql",
    "replay",
    "rows",
    "sample",
    "time",
    "tune_session",
    "twig_join",
    "verify",
    "window_join",
    "within",
    "xml_fragments",
    "xquery",
]

_HOME = {
    "Relation": "headrace.relation",
    "repair": "headrace.relation.repair",
    "verify": "headrace.relation.scrub",
    "MemoryBudget": "headrace.memory",
    "RunLog": "headrace.runlog",
    "assign_surrogate_keys": "headrace.etl.surrogate",
    "find_duplicates": "headrace.etl.duplicates",
    "maintain": "headrace.etl.maintain",
    "snapshot_diff": "headrace.etl.snapshot",
    "enrich": "headrace.spark.enrich",
    "finish": "headrace.spark.finish",
    "load": "headrace.spark.delta.load",
    "progress": "headrace.spark.progress",
    "multiway_join": "headrace.spark.multiway_join",
    "progressive_join": "headrace.spark.progressive_join",
    "BadPipeline": "headrace.pipeline.document",
    "BadQuery": "headrace.feeds.sql.mistakes",
    "sql": "headrace.feeds.query",
    "read_pipeline": "headrace.pipeline.read",
    "delta": "headrace.sources.delta",
    "postgresql": "headrace.sources.tables",
    "refresh": "headrace.sources.refresh",
    "register_sources": "headrace.feeds.spark.source",
    "load_postgresql": "headrace.spark.postgresql.sink",
    "read_postgresql": "headrace.spark.postgresql.source",
    "stream_postgresql": "headrace.spark.postgresql.source",
    "replay": "headrace.spark.replay",
    "Defer": "headrace.spark.defer",
    "Shedding": "headrace.spark.shed",
    "approximate_join": "headrace.spark.window_join",
    "estimate": "headrace.spark.estimate",
    "estimate_shed": "headrace.spark.shed_estimate",
    "sample": "headrace.spark.sample",
    "window_join": "headrace.spark.window_join",
    "tune_session": "headrace.spark.tuning",
    "twig_join": "headrace.spark.twig_join",
    "xml_fragments": "headrace.spark.xml_fragments",
    "xquery": "headrace.spark.xquery",
}
_CONDITIONS = (
    "all_of",
    "band",
    "between",
    "compare",
    "edit_distance",
    "equal",
    "intersects",
    "jaccard",
    "predicate",
    "within",
)
_HOME |= dict.fromkeys(_CONDITIONS, "headrace.conditions")
_HOME |= {"rows": "headrace.windows", "time": "headrace.windows"}
_HOME |= {name: "headrace.errors" for name in __all__ if name not in _HOME and name != "__version__"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        # With name and module, Python says what may have been meant.
        raise AttributeError(f"module 'headrace' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    try:
        home = importlib.import_module(_HOME[name])
    except ModuleNotFoundError as error:
        from headrace.errors import missing_extra

        raise missing_extra(f"hr.{name}", error) from None
    value = getattr(home, name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
