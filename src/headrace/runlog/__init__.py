"""The run log: what operators remember across micro-batches, in files that are never changed. (DESIGN D7)"""

from headrace.runlog.decided import Decided
from headrace.runlog.files import LogFile
from headrace.runlog.log import RunLog
from headrace.runlog.shard import ShardLog

__all__ = ["Decided", "LogFile", "RunLog", "ShardLog"]
