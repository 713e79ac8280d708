"""The tokeniser: chunks of a document to arrays of events, with well-formedness checked in the same pass. (DESIGN D13)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Int64s, UInt8s
from headrace.errors import BadInput, IllFormed, shown
from headrace.kernels import xml_scan as x
from headrace.memory import MemoryBudget
from headrace.xml.characters import CLASSES
from headrace.xml.encoding import Decoder
from headrace.xml.limits import Limits
from headrace.xml.names import NameTable
from headrace.xml.place import Place
from headrace.xml.reasons import reason_of, too_many_names

PIECE = 1 << 18  # bytes scanned at a time: they and their events stay in a core's cache
_EVENTS = 1 << 13  # events that there is room for
_PAD = 16  # bytes after the last, of which the scanner reads eight
_KINDS = ("start", "end", "text", "character", "attribute", "attribute end")


@dataclass(frozen=True)
class Events:
    """Events of a piece of a document, as the scanner wrote them, and the bytes that they point into.

    `words` are three for each event (see headrace.kernels.xml_scan), `data` the bytes from position `base` of the document
    on, of which the events cover those before `reached`. All are views of the tokeniser's memory, and change when it goes
    on.
    """

    words: Int64s
    data: UInt8s
    base: int
    reached: int

    def __len__(self) -> int:
        return self.words.size // x.EVENT


class Tokeniser:
    """Tokenises one document, whose bytes come in chunks of any size, and refuses it where it is not well-formed.

    Agrees with expat (without namespaces) on what is well-formed, apart from what the reference page says. Nothing is
    expanded or fetched: a reference to an entity other than the five of XML is refused, so there are no entity bombs;
    declarations in a document type declaration are passed over.

    Parameters
    ----------
    flags
        The names that are wanted, each with what for: AS_ELEMENT, WITH_TEXT and AS_ATTRIBUTE of headrace.kernels.xml_scan.
    default
        The same for all other names. By default everything is wanted.
    limits
        What a document may have at most.
    budget
        The memory that buffers and names are reserved in.
    file
        What messages call the document.
    made
        Says what had been made before an error, such as "3 fragments".
    text
        The document was text before it became these bytes: they are UTF-8, whatever encoding it declares.

    Example
    -------
    >>> from headrace.xml import Tokeniser
    >>> t = Tokeniser()
    >>> for chunk in (b"<a><b id='1'>x", b"y</b></a>"):
    ...     for events in t.feed(chunk):
    ...         t.spell(events)
    [('start', 'a'), ('start', 'b'), ('attribute', 'id'), ('text', '1'), ('attribute end', ''), ('text', 'x')]
    [('text', 'y'), ('end', 'b'), ('end', 'a')]
    >>> list(t.end())
    []
    """

    def __init__(
        self,
        flags: Mapping[bytes, int] | None = None,
        default: int = x.AS_ELEMENT | x.WITH_TEXT | x.AS_ATTRIBUTE,
        *,
        limits: Limits | None = None,
        budget: MemoryBudget | None = None,
        file: str = "document",
        made: Callable[[], str] | None = None,
        text: bool = False,
    ) -> None:
        self.limits = limits or Limits()
        budget = budget or MemoryBudget("64MiB")
        self._made = made or (lambda: f"{self.events_made} events")
        self._names = NameTable(flags or {}, self.limits.names, budget)
        size = PIECE + self.limits.name + 16 + _PAD
        budget.reserve("input buffer", 2 * size + 8 * _EVENTS * x.EVENT)
        budget.reserve("open elements", 5 * self.limits.depth)
        buffer = bytearray(size)
        self._data = np.frombuffer(buffer, np.uint8)
        self._events = np.empty(_EVENTS * x.EVENT, np.int64)
        self._open = np.empty(self.limits.depth, np.int32), np.empty(self.limits.depth, np.uint8)
        self._state = np.empty(x.STATE, np.int64)
        self._default = default
        self._place = Place(buffer)  # of the first held byte
        self._begin(file, text)

    def _begin(self, file: str, text: bool) -> None:
        self.file = file
        self.events_made = 0
        self._state[:] = 0
        self._state[x.MAX_NAME] = self.limits.name
        self._state[x.MAX_ATTRIBUTES] = self.limits.attributes
        self._state[x.DEFAULT] = self._default
        self._state[x.NAMES] = self._names.count
        self._tail = 0  # bytes that are held for the next piece
        self._decoder = Decoder(text)
        self._ended = False

    def reset(self, file: str = "document", *, text: bool = False) -> None:
        """Begin another document in the same memory, wherever the last one was left."""
        self._names.reset()
        self._place.reset()
        self._begin(file, text)

    @property
    def position(self) -> int:
        """The bytes of the document, as UTF-8, that were scanned."""
        return int(self._state[x.BASE])

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[Events]:
        """Scan a chunk; an iterator of events that must be read to its end. Raises IllFormed, after the events before."""
        if self._ended:
            raise BadInput(f"{self.file} has ended or was refused; begin another document with a new tokeniser")
        try:
            bytes_ = memoryview(chunk).cast("B")
        except TypeError:
            raise BadInput(f"a chunk of a document is bytes, not {type(chunk).__name__} {shown(chunk)}") from None
        yield from self._scan(self._decoder.feed(bytes_), final=False)

    def end(self) -> Iterator[Events]:
        """Say that the document has ended; an iterator as that of `feed`."""
        if self._ended:
            raise BadInput(f"{self.file} has ended or was refused; begin another document with a new tokeniser")
        yield from self._scan(self._decoder.feed(b"", final=True), final=True)
        self._ended = True

    def names(self, first: int = 0) -> list[str]:
        """Return the names that the document has so far, by their numbers from `first` on; those of `flags` come first."""
        return [self._names.spell(k) for k in range(first, int(self._state[x.NAMES]))]

    def spell(self, events: Events) -> list[tuple[str, str]]:
        """Return events as words, for tests and for a look at a document: kind, and name or text."""
        out = []
        for word, at, length in events.words.reshape(-1, x.EVENT).tolist():
            kind = word & 0xFF
            if kind == x.TEXT:
                said = bytes(events.data[at : at + length]).decode()
            elif kind == x.CHARACTER:
                said = chr(at)
            else:
                said = "" if kind == x.ATTRIBUTE_END else self._names.spell(word >> 32)
            out.append((_KINDS[kind], said))
        return out

    def _scan(self, chunk: bytes | memoryview, final: bool) -> Iterator[Events]:
        self._state[x.DECLARED] = self._decoder.declared
        wrong = self._decoder.reason
        source = np.frombuffer(chunk, np.uint8)
        last = final and wrong is None
        for at in range(0, source.size, PIECE):
            piece = source[at : at + PIECE]
            n = self._tail + piece.size
            self._data[self._tail : n] = piece
            yield from self._scan_piece(n, last and at + PIECE >= source.size)
        if last and not source.size:
            yield from self._scan_piece(self._tail, True)
        if wrong is not None:
            raise self._refusal(wrong, self._tail)

    def _scan_piece(self, n: int, final: bool) -> Iterator[Events]:
        """Scan data[:n], and keep what must be seen again."""
        state, data, names = self._state, self._data, self._names
        data[n : n + 8] = 0
        state[x.POSITION] = 0
        while True:
            state[x.EVENTS] = 0
            code = x.scan(
                data, n, final, state, CLASSES, names.bytes, names.at, names.hashes, names.table, names.flags, names.seen,
                *self._open, self._events,
            )  # fmt: skip
            made, reached = int(state[x.EVENTS]), int(state[x.POSITION])
            base = int(state[x.BASE])
            if made or reached:
                self.events_made += made // x.EVENT
                yield Events(self._events[:made], data, base, base + reached)
            if code == x.BAD:
                raise self._refusal(reason_of(int(state[x.ERROR]), self.limits), reached)
            if code == x.NAMES_FULL and not names.grow(int(state[x.NAMES])):
                raise self._refusal(too_many_names(self.limits), reached)
            if code == x.MORE:
                break
        self._place.advance(reached)
        self._tail = n - reached
        data[: self._tail] = data[reached:n].copy()
        state[x.BASE] = base + reached

    def refuse(self, reason: str) -> IllFormed:
        """Return the error for a document whose next bytes cannot be had, at the place that was reached; it has ended."""
        return self._refusal(reason, self._tail)

    def _refusal(self, reason: str, position: int) -> IllFormed:
        self._ended = True
        return IllFormed(self.file, *self._place.at(position), reason, self._made())
