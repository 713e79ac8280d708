"""The run log: what operators remember across micro-batches, in files that are never changed. (DESIGN D7)"""

from headrace.runlog.decision import DECISION, Decision, DecisionDraft, Snapshot
from headrace.runlog.files import LogFile
from headrace.runlog.log import RunLog
from headrace.runlog.replay import (
    FINISH_PART,
    ReplayDriver,
    ReplayedOperator,
    close_finish,
    forget_finish,
    last_decision,
    owing,
    unfinished,
)
from headrace.runlog.row_multiset import RowMultiset
from headrace.runlog.shard import ShardLog

__all__ = [
    "DECISION",
    "Decision",
    "DecisionDraft",
    "FINISH_PART",
    "LogFile",
    "ReplayDriver",
    "ReplayedOperator",
    "RowMultiset",
    "RunLog",
    "ShardLog",
    "Snapshot",
    "close_finish",
    "forget_finish",
    "owing",
    "last_decision",
    "unfinished",
]
