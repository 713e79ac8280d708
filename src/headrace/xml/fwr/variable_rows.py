"""VariableRows: one variable of a query as a pattern, which whole documents are matched with one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import IllFormed
from headrace.memory import MemoryBudget
from headrace.xml.fwr.plan import Semantics, plan_query
from headrace.xml.fwr.variable import Variable
from headrace.xml.limits import Limits
from headrace.xml.machine import MEMORY
from headrace.xml.twig import Twigs


@dataclass(frozen=True)
class VariableRows:
    """The rows of a variable, as the join takes them, in the place of the fragments of a twig.

    It travels as the text of its query: a variable holds rows of open elements, so each matcher has one of its own.

    Parameters
    ----------
    text, semantics
        Those of the query.
    number
        Which of its variables.
    """

    text: str
    semantics: Semantics
    number: int

    @property
    def path(self) -> str:
        """The path that the variable is bound to."""
        return self._variable.binding.text

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows: keys and returned paths."""
        return self._variable.schema

    @property
    def _variable(self) -> Variable:
        return plan_query(self.text, self.semantics).variables[self.number]

    def matcher(
        self, *, memory: int | str = MEMORY, limits: Limits | None = None, file: str = "document", text: bool = False
    ) -> VariableMatcher:
        """Return a matcher for documents; with `text`, as UTF-8 whatever they declare."""
        return VariableMatcher(self._variable, memory=memory, limits=limits, file=file, text=text)


class VariableMatcher:
    """Makes the rows of a variable of one document at a time: `feed` and `end` must be read to their ends."""

    def __init__(self, variable: Variable, *, memory: int | str, limits: Limits | None, file: str, text: bool) -> None:
        self._variable = variable
        budget = MemoryBudget(memory)
        self._machine = Twigs(variable.twigs).machine(memory=budget, limits=limits, file=file, text=text)
        variable.reserve(budget)

    def reset(self, file: str, *, text: bool) -> bool:
        """Begin another document, wherever the last one was left; False if a new matcher must be made."""
        # What the variable holds of the last document is reserved in the machine's budget: a machine that sees more in it than
        # its own is not used again, and neither is the variable.
        return self._machine.reset(file, text=text)

    def refuse(self, reason: str) -> IllFormed:
        """Return the error for a document whose next bytes cannot be had, at the place that was reached."""
        return self._machine.refuse(reason)

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Take a chunk of the document, and yield the rows of elements that end in it."""
        for number, batch in self._machine.feed(chunk):
            yield from self._variable.take(number, batch)

    def end(self) -> Iterator[pa.RecordBatch]:
        """Say that the document has ended. Raises IllFormed if it may not end there."""
        for number, batch in self._machine.end():
            yield from self._variable.take(number, batch)
