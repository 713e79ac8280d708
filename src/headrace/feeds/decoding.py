"""Bodies of answers, unpacked piece by piece in bounded memory: a small gzip may hold gigabytes."""

from __future__ import annotations

import zlib

from headrace.errors import FeedUnavailable
from headrace.feeds.fetcher import shown_url
from headrace.units import format_size

_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
ACCEPTED = "gzip, deflate"


class Body:
    """The body of an answer while it arrives. What is too large is refused as soon as it is, packed or unpacked.

    Parameters
    ----------
    url
        For messages.
    encoding
        The Content-Encoding: nothing, identity, gzip or deflate.
    limit
        Bytes that it may have, unpacked.
    """

    def __init__(self, url: str, encoding: str | None, limit: int) -> None:
        self.url, self.limit = url, limit
        self._parts: list[bytes] = []
        self._size = 0
        self._unpack: zlib._Decompress | None = None
        self._encoding = (encoding or "identity").strip().lower().removeprefix("x-")
        if self._encoding not in ("identity", "gzip", "deflate", ""):
            raise FeedUnavailable(f"{shown_url(url)} was sent as {encoding!r}, which was not asked for: {ACCEPTED} are")

    def add(self, piece: bytes) -> None:
        """Add a piece as it came."""
        if self._encoding in ("identity", ""):
            self._keep(piece)
            return
        try:
            while piece:
                piece = self._unpacked(piece)
        except zlib.error as error:
            raise FeedUnavailable(
                f"{shown_url(self.url)} says that its body is {self._encoding}, and it is not: {error}"
            ) from None

    def whole(self) -> bytes:
        """Return the unpacked body; refuses one that ends in the middle."""
        if self._unpack is not None and not self._unpack.eof:
            raise FeedUnavailable(f"the body of {shown_url(self.url)} is cut: its {self._encoding} has no end")
        return b"".join(self._parts)

    def _unpacked(self, piece: bytes) -> bytes:
        """Unpack as much as there may be, and return what is left to unpack."""
        if self._unpack is None or self._unpack.eof:  # the beginning, or a further member of a gzip
            self._unpack = zlib.decompressobj(_GZIP if self._encoding == "gzip" else _window(piece))
        # One byte more than there may be shows that it is too large.
        self._keep(self._unpack.decompress(piece, self.limit - self._size + 1))
        if self._unpack.eof and self._encoding == "deflate":
            return b""
        return self._unpack.unconsumed_tail or self._unpack.unused_data

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self.limit:
            raise FeedUnavailable(
                f"{shown_url(self.url)} has more than {format_size(self.limit)}, unpacked, and is not read further"
            )
        self._parts.append(data)


def _window(piece: bytes) -> int:
    """Return what deflate means here: a zlib stream, as the standard says, or a bare one, as some servers send."""
    header = int.from_bytes(piece[:2], "big")
    return _ZLIB if piece[0] & 0x0F == 8 and header % 31 == 0 else _RAW
