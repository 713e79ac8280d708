"""Deferral: the settings of a DeferredJoin, and the column names that it needs for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from headrace.errors import BadInput
from headrace.semistream.deferred.dead_letters import LETTER
from headrace.semistream.deferred.queue_rows import QUEUE_NAMES
from headrace.semistream.deferred.remaining import EXTRA, FATE
from headrace.units import format_duration

Unmatched = Literal["drop", "null", "dead_letter", "retry"]

MARK = "__headrace_matched"  # the column of the operator's results that says whether a row has a match


@dataclass(frozen=True)
class Deferral:
    """Which rows may be put off, and for how long.

    Parameters
    ----------
    deadline
        Seconds within which a row is to leave; None: in its micro-batch.
    unmatched
        What becomes of a row without a match.
    retry_for
        Seconds during which it is tried again, with unmatched="retry".
    period
        Seconds after which the next micro-batch is expected at the latest, while no interval has been observed.
    """

    deadline: float | None = None
    unmatched: Unmatched = "drop"
    retry_for: float = 3600.0
    period: float = 1.0

    @property
    def sorts_out(self) -> bool:
        """Whether rows without a match are separated from the results, to be tried again or kept as dead letters."""
        return self.unmatched in ("dead_letter", "retry")

    @property
    def asked(self) -> str:
        """What rows are put off for, as the user has written it."""
        return (
            f"deadline={format_duration(self.deadline)!r}"
            if self.deadline is not None
            else f"unmatched={self.unmatched!r}"
        )

    def check(self, stream: pa.Schema) -> None:
        """Refuse a stream that has a column with a name that is needed here."""
        taken = [*EXTRA.names, FATE, MARK, *QUEUE_NAMES, *(LETTER.names if self.sorts_out else ())]
        for name in stream.names:
            if name in taken:
                raise BadInput(f"the stream has a column {name!r}, a name that is needed for rows put aside; rename it")
