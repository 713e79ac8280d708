"""The encoding of a document: found by its first bytes and its XML declaration; other encodings than UTF-8 are transcoded."""

from __future__ import annotations

import codecs
import re

_DECLARATION = re.compile(
    rb"<\?xml[ \t\r\n]+version[ \t\r\n]*=[ \t\r\n]*(?:'[\w.-]*'|\"[\w.-]*\")"
    rb"(?:[ \t\r\n]+encoding[ \t\r\n]*=[ \t\r\n]*(?:'([A-Za-z][\w.-]*)'|\"([A-Za-z][\w.-]*)\"))?"
    rb"(?:[ \t\r\n]+standalone[ \t\r\n]*=[ \t\r\n]*(?:'(?:yes|no)'|\"(?:yes|no)\"))?[ \t\r\n]*\?>"
)  # \w of bytes is ASCII
_LONGEST = 4096  # bytes of a declaration: it has three short words, so a longer one is none
_PLAIN = (
    bytes(range(32, 127)) + b"\t\n\r"
)  # what every encoding but UTF-16 must share with ASCII, for the declaration is read first


class Decoder:
    """Turns chunks of a document into UTF-8, without byte order mark; `declared` says whether there is an XML declaration.

    A document that was text in its last place (`text`) is UTF-8 here, whatever encoding it declares.
    """

    def __init__(self, text: bool = False) -> None:
        self._text = text
        self.declared = False
        self.reason: str | None = None
        self._head: bytes | None = b""  # what came before the encoding was known
        self._decoder: codecs.IncrementalDecoder | None = None  # None: the bytes are UTF-8 already

    def feed(self, chunk: bytes | memoryview, final: bool = False) -> bytes | memoryview:
        """Decode a chunk; nothing may come out until the encoding is known. Bytes that cannot be decoded set `reason`."""
        if self._head is None:
            return self._decode(chunk, final)
        self._head += bytes(chunk)
        rest = self._begin(final)
        if rest is None:
            return b""
        self._head = None
        return rest

    def _begin(self, final: bool) -> bytes | None:
        """Choose the encoding when enough has come; returns the bytes so far as UTF-8."""
        head = self._head
        assert head is not None
        if len(head) < 4 and not final:
            return None
        if not self._text and (head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head[:2]):
            little = head.startswith(b"\xff\xfe") or head[1:2] == b"\0"
            return self._begin_utf16(head, little, final)
        head = head.removeprefix(codecs.BOM_UTF8)
        end = self._declaration_end(head, final)
        if end is None:
            return None
        encoding = self._declared_encoding(head[:end]) if end else None
        if self.reason is not None:
            return b""
        if encoding is None or encoding.lower() == "utf-8" or self._text:
            return head
        try:
            codec = codecs.lookup(encoding)
            known = getattr(codec, "_is_text_encoding", True) and codec.incrementaldecoder is not None
            if not known or codecs.decode(_PLAIN, encoding) != _PLAIN.decode("ascii"):
                raise LookupError
        except (LookupError, ValueError):
            self.reason = f"the encoding {encoding!r} is not known, or is not that of the declaration itself"
            return b""
        if codec.name == "utf-8":
            return head
        self._decoder = codec.incrementaldecoder("strict")
        return head[:end] + bytes(self._decode(head[end:], final))

    def _begin_utf16(self, head: bytes, little: bool, final: bool) -> bytes | None:
        name = "utf-16-le" if little else "utf-16-be"
        decoder = codecs.getincrementaldecoder(name)("strict")
        self._decoder = decoder
        text = bytes(self._decode(head[2:] if head[0] >= 0xFE else head, final))
        end = self._declaration_end(text, final) if self.reason is None else 0
        if end is None:
            return None
        encoding = self._declared_encoding(text[:end]) if end else None
        if encoding is not None and encoding.lower() not in ("utf-16", name.replace("16-", "16")):
            self.reason = f"the declaration says {encoding!r}, and the document is in {name}"
        return text if encoding is None or self.reason is None else b""

    def _declaration_end(self, head: bytes, final: bool) -> int | None:
        """Where the XML declaration ends, 0 if there is none, None if more bytes must tell."""
        if not final and len(head) < 6 and b"<?xml ".startswith(head[:5]):
            return None
        if not head.startswith(b"<?xml") or head[5:6] not in (b" ", b"\t", b"\r", b"\n", b"?"):
            return 0
        end = head.find(b"?>") + 2
        if end > 1:
            return end
        if len(head) > _LONGEST:
            self.reason = f"the XML declaration has more than {_LONGEST} bytes"
            return 0
        return 0 if final else None

    def _declared_encoding(self, declaration: bytes) -> str | None:
        found = _DECLARATION.fullmatch(declaration)
        if found is None:
            self.reason = 'the XML declaration is not of the form <?xml version="1.0" encoding="…" standalone="…"?>'
            return None
        self.declared = True
        name = found[1] or found[2]
        return name.decode("ascii") if name else None

    def _decode(self, chunk: bytes | memoryview, final: bool) -> bytes | memoryview:
        if self._decoder is None:
            return chunk
        try:
            return self._decoder.decode(bytes(chunk), final).encode()
        except UnicodeDecodeError as error:
            self.reason = f"bytes that are not {error.encoding}"
            return error.object[: error.start].decode(error.encoding, "ignore").encode()
