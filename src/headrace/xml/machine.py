"""TwigMachine: several twigs over one document, in one scan. [PQP] §7.1.2"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray
from headrace.errors import BadInput, IllFormed
from headrace.kernels import twigs as t
from headrace.memory import MemoryBudget, Reservation
from headrace.xml.limits import Limits
from headrace.xml.program import Program
from headrace.xml.rows import batch_of
from headrace.xml.tokeniser import Events, Tokeniser

if TYPE_CHECKING:
    from headrace.xml.twig import Twig

MEMORY = "64MiB"
ROWS = 8192  # fragments of a batch, at most
_OUT = 1 << 18  # bytes of texts in a batch; a fragment that has more alone has a batch of its own
_POOL = 1 << 12  # words of records that there is room for at first
_ARENA = 1 << 14  # bytes of texts of open elements that there is room for at first
_PARTS = {
    t.POOL_FULL: "partial solutions",
    t.TEXTS_FULL: "texts of open elements",
    t.VALUES_FULL: "attribute values of open elements",
    t.XMLS_FULL: "subtrees of open elements",
    t.PENDING_FULL: "attributes that wait for the end of their element",
}
_USED = {
    t.POOL_FULL: t.POOL,
    t.TEXTS_FULL: t.TEXTS,
    t.VALUES_FULL: t.VALUES,
    t.XMLS_FULL: t.XMLS,
    t.PENDING_FULL: t.PENDING,
}


@dataclass(frozen=True)
class TwigStats:
    """What a machine has done so far: bytes scanned (as UTF-8), events made of them, fragments, and memory by part."""

    bytes_scanned: int
    events: int
    fragments: int
    memory: dict[str, int]
    memory_peak: int


class TwigMachine:
    """Runs twigs over one document that comes in chunks. Made by `Twigs.machine`; `Twig.matcher` is the form for one twig.

    `feed` and `end` are iterators of (number of the twig, record batch), and must be read to their ends. Memory is that of
    the scanner, which does not grow with the document, and the partial solutions of open elements, which are reserved in
    the budget as they grow: MemoryRefused says which part asked. What can no longer become part of a fragment is thrown
    away before a part grows. `memory` may be a budget that others share.
    """

    def __init__(
        self,
        twigs: Sequence[Twig],
        program: Program,
        *,
        memory: int | str | MemoryBudget = MEMORY,
        limits: Limits | None = None,
        file: str = "document",
        text: bool = False,
    ) -> None:
        self.budget = memory if isinstance(memory, MemoryBudget) else MemoryBudget(memory)
        self.twigs = twigs
        self._program = program
        self._tokeniser = Tokeniser(
            program.flags,
            program.default,
            limits=limits,
            budget=self.budget,
            file=file,
            made=lambda: f"{int(self._m[t.MADE])} fragments",
            text=text,
        )
        self._m = np.empty(t.MACHINE, np.int64)
        self._attribute_needs = program.attributes.needs + program.attributes.cells
        self._top = np.empty(program.count, np.int64)
        self._cursor = np.empty(4 * program.most, np.int64)
        self._work = np.empty(2 * (program.lists + program.count) + 9, np.int64)
        widest = int(program.twigs.reshape(-1, t.TWIG_FIELDS)[:, t.WIDTH].max())
        self._rows = np.empty(ROWS * min(widest, 64) + widest, np.int64)
        self._row_at = np.empty(ROWS, np.int64)
        nbytes = 8 * (program.nodes.size + self._top.size + self._cursor.size + self._work.size)
        self.budget.reserve("twigs", nbytes)
        self._out = np.empty(_OUT, np.uint8)
        self._fragments = self.budget.reserve("fragments", self._rows.nbytes + self._row_at.nbytes + _OUT)
        self._reserved: dict[int, Reservation] = {}
        self._arrays: dict[int, AnyArray] = {}
        for part, size, kind in (
            (t.POOL_FULL, max(_POOL, int(program.elements.needs.max(initial=0))), np.int64),
            (t.TEXTS_FULL, _ARENA, np.uint8),
            (t.VALUES_FULL, _ARENA, np.uint8),
            (t.XMLS_FULL, _ARENA, np.uint8),
            (t.PENDING_FULL, _POOL // 8 * t.WAITING, np.int64),
        ):
            array: AnyArray = np.empty(size, kind)
            self._reserved[part] = self.budget.reserve(_PARTS[part], array.nbytes)
            self._arrays[part] = array
        self._least = self.budget.used
        self._begin()

    def _begin(self) -> None:
        self._m[:] = 0
        self._m[[t.EMITTING, t.ROOT]] = -1
        self._m[t.PENDING_NEEDS] = self._program.pending_needs
        self._top[:] = -1
        self._cursor[:] = -1
        self._busy = False

    def reset(self, file: str = "document", *, text: bool = False) -> bool:
        """Begin another document in the same memory, wherever the last one was left; False if a new machine must be made.

        One that has grown is not used again: what a document may take must not depend on those before it.
        """
        if self.budget.used != self._least:
            return False
        self._tokeniser.reset(file, text=text)
        self._begin()
        return True

    def refuse(self, reason: str) -> IllFormed:
        """Return the error for a document whose next bytes cannot be had, at the place that was reached."""
        return self._tokeniser.refuse(reason)

    @property
    def stats(self) -> TwigStats:
        """What was done so far."""
        scanned, events = self._tokeniser.position, self._tokeniser.events_made
        return TwigStats(scanned, events, int(self._m[t.MADE]), self.budget.held(), self.budget.peak)

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Take a chunk of the document, and yield the fragments that end in it."""
        yield from self._run(self._tokeniser.feed(chunk))

    def end(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Say that the document has ended. Raises IllFormed if it may not end there."""
        yield from self._run(self._tokeniser.end())

    def _run(self, pieces: Iterator[Events]) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._busy:
            raise BadInput(
                "the iterator of an earlier feed was not read to its end, or ended in an error; begin again with a new machine"
            )
        self._busy = True
        while True:
            try:
                events = next(pieces, None)
            except BaseException:
                # What ended before the error was found in well-formed bytes: it is handed on first.
                yield from self._flush()
                raise
            if events is None:
                break
            yield from self._match(events)
        yield from self._flush()
        self._busy = False

    def _match(self, events: Events) -> Iterator[tuple[int, pa.RecordBatch]]:
        p, m = self._program, self._m
        while True:
            a = self._arrays
            full = t.match(
                events.words, events.words.size, events.data, events.base, events.reached, m, p.nodes, p.slots, p.members,
                p.required, p.queries, p.elements.at, p.elements.nodes, p.elements.needs, p.elements.cells, p.attributes.at,
                p.attributes.nodes, self._attribute_needs, p.literals, p.digits, p.twigs, p.columns, self._top, a[t.POOL_FULL],
                a[t.TEXTS_FULL], a[t.VALUES_FULL], a[t.XMLS_FULL], a[t.PENDING_FULL], self._cursor, self._rows, self._row_at,
                self._out,
            )  # fmt: skip
            if full == t.DONE:
                return
            if full in (t.ROWS_FULL, t.OUT_FULL):
                if m[t.ROWS] == 0:
                    self._widen_out()
                yield from self._flush()
            else:
                self._make_room(full)

    def _flush(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows that were written, a batch for each twig that has some."""
        m = self._m
        count = int(m[t.ROWS])
        batches = []
        if count:
            at = self._row_at[:count]
            numbers = self._rows[at]
            if len(self.twigs) == 1:
                groups = [(0, at)]
            else:
                order = np.argsort(numbers, kind="stable")
                cuts = np.flatnonzero(np.diff(numbers[order])) + 1
                groups = [(int(numbers[part[0]]), at[part]) for part in np.split(order, cuts)]
            for number, picked in groups:
                twig = self.twigs[number]
                batches.append((number, batch_of(twig.schema, twig.kinds, self._rows, picked, self._out)))
        m[t.ROWS] = m[t.WORDS] = m[t.OUT] = 0
        self._cursor[2 * self._program.most :] = -1  # texts must be written again
        yield from batches

    def _widen_out(self) -> None:
        """Make room for a fragment whose texts alone are larger than those of a batch."""
        size = 2 * (int(self._m[t.OUT]) + int(self._m[t.ASKED]))
        self._fragments.resize(self._rows.nbytes + self._row_at.nbytes + size)
        self._out = np.empty(size, np.uint8)

    def _make_room(self, part: int) -> None:
        """Throw away what nothing leads to; if that leaves less than half, enlarge the part."""
        a, m = self._arrays, self._m
        t.collect(
            m, self._program.nodes, self._top, a[t.POOL_FULL], a[t.TEXTS_FULL], a[t.VALUES_FULL], a[t.XMLS_FULL],
            a[t.PENDING_FULL], self._work,
        )  # fmt: skip
        used, asked, array = int(m[_USED[part]]), int(m[t.ASKED]), a[part]
        if used + asked <= array.size // 2:
            return
        size = max(2 * array.size, 2 * (used + asked))
        # Old and new array are held together while the one is copied to the other.
        self._reserved[part].resize((array.size + size) * array.itemsize)
        larger = np.empty(size, array.dtype)
        larger[:used] = array[:used]
        a[part] = larger
        self._reserved[part].resize(larger.nbytes)
