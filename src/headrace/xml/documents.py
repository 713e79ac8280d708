"""Whole documents, in files or in memory: read in chunks, decompressed on the way, and matched with a twig one by one."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import pyarrow as pa

from headrace.errors import BadInput, IllFormed, MemoryRefused, OutsideFailure, choice
from headrace.files import open_regular, status
from headrace.units import parse_size
from headrace.xml.limits import Limits
from headrace.xml.machine import MEMORY
from headrace.xml.tokeniser import Tokeniser
from headrace.xml.twig import Pattern, PatternMatcher

#: What becomes of fragments that came before the error of an ill-formed document.
Partial = Literal["drop", "keep"]
#: Opens a document at its first byte; it may be called again.
Opener = Callable[[], BinaryIO]

CHUNK = 1 << 20  # bytes read at a time: a batch of fragments is made for each, and should be worth its cost
_PIECE = 1 << 16  # bytes decompressed at a time
_HELD = 4 << 20  # bytes of fragments that wait, at most, for the end of their document
_GZIP = b"\x1f\x8b"
_ZSTD = bytes.fromhex("28b52ffd")
_ZSTD_SKIPPED = bytes.fromhex(
    "2a4d18"
)  # after a byte 0x50 to 0x5f: a frame to pass over, which parallel writers begin with


class _Damaged(BadInput):
    """Compressed bytes that cannot be decompressed."""


def read_document(path: str | Path) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks, decompressed if its first bytes are those of gzip or zstd, whatever its name.

    Example
    -------
    >>> from headrace.xml import Twig, read_document
    >>> list(Twig("//item").fragments(read_document("nothing.xml.gz")))
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'nothing.xml.gz'
    """
    with open_document(path) as file:
        yield from _chunks(file)


def open_document(path: str | Path) -> BinaryIO:
    """Open a file of a document; a symbolic link is followed, and what is not a file, such as a FIFO, is refused."""
    found = status(Path(path), follow=False)
    is_link = found is not None and stat.S_ISLNK(found.st_mode)
    place = Path(os.path.realpath(path)) if is_link else Path(path)
    return os.fdopen(open_regular(place), "rb")  # files: a stream of the user's own data


class DocumentMatcher:
    """Matches one twig with documents, one after the other, each in memory that does not grow with it.

    A document that is not well-formed, is larger than its limits allow or cannot be decompressed raises IllFormed, with line and
    column. By default it gives no fragment then: those that are found wait for the end of the document, and when there
    are more of them than memory for a few, the document is read twice, first to see whether it is well-formed. With
    partial="keep" the fragments that ended before the error are given, and the document is read once.

    Parameters
    ----------
    twig
        The pattern.
    partial
        "drop" or "keep": what becomes of fragments of an ill-formed document.
    memory
        For one document at a time: that of Twig.fragments, and of the fragments that wait.
    limits
        As for Twig.fragments.

    Example
    -------
    >>> import io
    >>> from headrace.xml import DocumentMatcher, Twig
    >>> matcher = DocumentMatcher(Twig("//b"))
    >>> for document in (b"<a><b>x</b></a>", b"<a><b>y</b>", b"<a><b>z</b></a>"):
    ...     try:
    ...         [batch.to_pylist() for batch in matcher.fragments(lambda: io.BytesIO(document))]
    ...     except IllFormed as error:
    ...         error.reason
    [[{'b': 'x'}]]
    'the document ends before its root element does'
    [[{'b': 'z'}]]
    """

    def __init__(
        self, twig: Pattern, *, partial: Partial = "drop", memory: int | str = MEMORY, limits: Limits | None = None
    ) -> None:
        self.twig = twig
        self.partial = choice("partial", partial, get_args(Partial))
        self.memory = parse_size(memory, name="memory")
        self.limits = limits
        self._held = 0 if partial == "keep" else min(_HELD, self.memory // 8)
        self._matcher = self._new("document", False)

    def fragments(self, document: Opener, file: str = "document", *, text: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the fragments of a document; with `text` it is UTF-8, whatever encoding it declares."""
        found = self._match(document, file, text)
        if self.partial == "keep":
            yield from found
            return
        held: list[pa.RecordBatch] = []
        waiting = 0
        for batch in found:
            held.append(batch)
            waiting += batch.nbytes
            if waiting > self._held:
                self._check(document, file, text)
                yield from held
                held.clear()
                yield from _unchanged(found)
        yield from held

    def _match(self, document: Opener, file: str, text: bool) -> Iterator[pa.RecordBatch]:
        if not self._matcher.reset(file, text=text):
            self._matcher = self._new(file, text)
        matcher = self._matcher
        try:
            with document() as opened:
                for chunk in _chunks(opened):
                    yield from matcher.feed(chunk)
            yield from matcher.end()
        except _Damaged as error:
            raise matcher.refuse(str(error)) from error
        except MemoryRefused as error:
            raise MemoryRefused(f"{file}: {error}") from error

    def _new(self, file: str, text: bool) -> PatternMatcher:
        return self.twig.matcher(memory=self.memory - self._held, limits=self.limits, file=file, text=text)

    def _check(self, document: Opener, file: str, text: bool) -> None:
        """Read a document to its end; raises IllFormed."""
        tokeniser = Tokeniser({}, 0, limits=self.limits, file=file, made=lambda: "0 fragments", text=text)
        try:
            with document() as opened:
                for chunk in _chunks(opened):
                    for _ in tokeniser.feed(chunk):
                        pass
            for _ in tokeniser.end():
                pass
        except _Damaged as error:
            raise tokeniser.refuse(str(error)) from error


def _unchanged(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rest of a document that was well-formed when it was read first: fragments of it have been given."""
    try:
        yield from found
    except IllFormed as error:
        raise OutsideFailure(
            f"{error.file} changed while it was read: {error.reason}; write documents elsewhere and rename them"
        ) from error


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a document in chunks, decompressed; no chunk is larger than CHUNK, however well it was compressed."""
    head = file.read(4)
    file.seek(0)
    if head.startswith(_GZIP):
        yield from _decompressed(gzip.GzipFile(fileobj=file), "gzip")
    elif head == _ZSTD or (head[1:] == _ZSTD_SKIPPED and 0x50 <= head[0] <= 0x5F):
        yield from _decompressed(pa.CompressedInputStream(file, "zstd"), "zstd")
    else:
        while chunk := file.read(CHUNK):
            yield chunk


def _decompressed(stream: Any, kind: str) -> Iterator[bytes]:
    """Gather pieces to chunks: a read that fails loses all that it has decompressed, and what came before it must not be lost."""
    gathered = bytearray()
    wrong: Exception | None = None
    while True:
        try:
            piece = stream.read1(min(_PIECE, CHUNK - len(gathered)))
        except (OSError, EOFError, zlib.error) as error:
            if getattr(error, "errno", None) is not None:  # of the disk; those of decompressors have no number
                raise
            piece, wrong = b"", error
        gathered += piece
        if len(gathered) >= CHUNK or (not piece and gathered):
            yield bytes(gathered)
            gathered.clear()
        if not piece:
            break
    if wrong is not None:
        raise _Damaged(f"the compressed bytes ({kind}) are damaged or cut off: {wrong}") from wrong
