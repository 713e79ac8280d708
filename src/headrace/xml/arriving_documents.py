"""Documents: documents that arrive at the same time, each with its twig machine, in one budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from headrace.errors import BadInput, IllFormed, choice
from headrace.memory import MemoryBudget
from headrace.xml.limits import Limits
from headrace.xml.twig import Twig, Twigs


class Documents:
    """Feeds chunks of named documents to their machines, and knows which documents have ended.

    Parameters
    ----------
    twigs
        The twigs of each document, by its name.
    kind
        What messages call a document: "stream" or "document".
    made
        Says what was made before a document was found ill-formed; its fragments if None.
    """

    def __init__(
        self,
        twigs: Mapping[str, Sequence[Twig]],
        *,
        kind: str,
        budget: MemoryBudget,
        limits: Limits | None,
        made: Callable[[], str] | None = None,
    ) -> None:
        self._kind, self._made = kind, made
        self.machines = {
            name: Twigs(some).machine(memory=budget, limits=limits, file=name) for name, some in twigs.items()
        }
        self.open = set(self.machines)

    def feed(self, name: str, chunk: bytes | bytearray | memoryview) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Take a chunk of a document; yields what its machine does. An ill-formed document counts as ended."""
        self._may_go_on(name)
        return self._run(name, self.machines[name].feed(chunk))

    def end(self, name: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Say that a document has ended; yields what its machine does."""
        self._may_go_on(name)
        return self._run(name, self.machines[name].end(), last=True)

    def all_ended(self) -> None:
        """Refuse to go on while a document has not ended."""
        if self.open:
            name = min(self.open)
            raise BadInput(
                f"the {self._kind} {name!r} has not ended; call end({name!r}) first, which also finds out if it is whole"
            )

    def _may_go_on(self, name: str) -> None:
        choice(self._kind, name, self.machines)
        if name not in self.open:
            raise BadInput(f"the {self._kind} {name!r} has ended, or was refused as ill-formed")

    def _run(
        self, name: str, results: Iterator[tuple[int, pa.RecordBatch]], last: bool = False
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        try:
            yield from results
        except IllFormed as error:
            self.open.discard(name)
            if self._made is None:
                raise
            # Its fragments have been made into something else, the last of them just now.
            raise IllFormed(error.file, error.line, error.column, error.reason, self._made()) from None
        if last:
            self.open.discard(name)
