"""SharedTable: the whole table of a group, in memory that its processes map. (DESIGN D5)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.semistream.adaptive.group_memory import shared_size
from headrace.semistream.adaptive.shared_content import PAGE, SharedContent
from headrace.semistream.adaptive.whole_table import WholeTable, WholeTablePlan


class SharedTable(SharedContent):
    """A WholeTable that is loaded by whoever comes first, and used by all of a group.

    Parameters
    ----------
    card
        Path of the file through which the processes find the memory.
    relation, payload, plan
        The relation, the columns that are wanted, and how the budget is divided.
    begin_loading
        Reserves what loading takes, and gives the counters for what it reads.
    """

    def __init__(
        self,
        card: Path,
        relation: Relation,
        payload: tuple[Column, ...],
        plan: WholeTablePlan,
        begin_loading: Callable[[], JoinStats],
    ) -> None:
        self._plan = plan
        self._begin_loading = begin_loading
        size = shared_size(plan.limit, payload, relation.num_shards, plan.workers)
        super().__init__(card, size, plan.workers, relation, payload, f"whole:{plan.table}:{plan.slots}")

    def _write(self) -> None:
        self.table().load(self.relation, self._begin_loading())

    def table(self) -> WholeTable:
        """The table as it lies in the memory."""
        return WholeTable(self._plan, self.relation.codec, self.memory.piece(PAGE, self._plan.table))
