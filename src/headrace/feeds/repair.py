"""Documents that are not well-formed: their encoding is found, and what real readers accept is made well-formed.

`decode` is for every document; `mend` is for those that the tokeniser refuses, and slower. What it gives is tokenised again, so
it need not be perfect, only harmless.
"""

from __future__ import annotations

import codecs
import html.entities
import re

_DECLARED = re.compile(rb"^\s*<\?xml[^>]*?encoding\s*=\s*['\"]\s*([\w.:-]+)", re.DOTALL)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# Possessive (*+): a name of a megabyte that nothing follows would else be tried with each of its lengths.
_NAME = r"[A-Za-z_:\x80-\U0010ffff][\w:.\-\x80-\U0010ffff]*+"
_TAG = re.compile(rf"<(/?)({_NAME})([^<>]*+)>", re.DOTALL)
_QUOTED_TAG = re.compile(rf"<(/?)({_NAME})((?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>", re.DOTALL)
_QUOTED = 4096  # characters of a tag that is looked at again because '<' or '>' may be in its quotes
_LOOKS = 1000  # tags of a document that are looked at again: what has more means harm
# It begins where a name does, and not at each character of one.
_ATTRIBUTE = re.compile(rf"(?<![\w:.\-\x80-\U0010ffff])({_NAME})\s*+=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_REFERENCE = re.compile(r"&(?:#(\d{1,8});|#[xX]([0-9A-Fa-f]{1,7});|([A-Za-z][\w.]{0,40});|)")
_ENTITY = re.compile(r"<!ENTITY\s+([A-Za-z][\w.-]{0,40})\s+(?:\"([^\"&%<]{0,1000})\"|'([^'&%<]{0,1000})')\s*>")
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_CHARACTER = 4  # bytes of a character, at most
_PLAIN = {"amp", "lt", "gt", "quot", "apos"}
_GROWTH = 1 << 20  # characters that entities of a document may add to it: a bomb has more
_PROLOG = re.compile(rf"<(?:\?xml|!DOCTYPE|!--|{_NAME}[\s/>])", re.IGNORECASE)


def decode(content: bytes, content_type: str | None) -> tuple[bytes, str | None]:
    """Return a document as UTF-8 without byte order mark, and what was wrong with its encoding.

    Encodings are tried as the byte order mark, the declaration and the content type name them. Bytes that none of them can have
    made are windows-1252, with which nearly all such feeds are written.
    """
    for mark, name in _BOMS:
        if content.startswith(mark):
            return _as_utf8(content[len(mark) :], [name])
    if content[:4].count(b"\0") == 2:
        return _as_utf8(content, ["utf-16-le" if content[1:2] == b"\0" else "utf-16-be"])
    declared = _DECLARED.match(content[:1024])
    names = [declared[1].decode("ascii", "replace")] if declared else []
    spoken = _CHARSET.search(content_type or "")
    if spoken and not declared:
        names.append(spoken[1])
    return _as_utf8(content, names or ["utf-8"])


def _as_utf8(content: bytes, names: list[str]) -> tuple[bytes, str | None]:
    wrong = ""
    for name in (*names, "utf-8", "windows-1252"):
        # Documents that say latin-1 are read as windows-1252 by all readers: it has letters where latin-1 has controls.
        known = _codec(name)
        if known is None:
            wrong = wrong or f"the encoding {name!r} is not known"
            continue
        try:
            text = content if known == "utf-8" and _is_utf8(content) else _decoded(content, known).encode()
        except (UnicodeDecodeError, UnicodeEncodeError):
            wrong = wrong or f"the bytes are not {name}, which the document is said to be in"
            continue
        return text, wrong and f"{wrong}: it was read as {known}"
    return content.decode(
        "windows-1252", "replace"
    ).encode(), f"{wrong}: it was read as windows-1252, with characters missing"


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decoded(content: bytes, codec: str) -> str:
    """Decode a document, which may have been cut in the middle of its last character."""
    try:
        return content.decode(codec)
    except UnicodeDecodeError as error:
        if len(content) - error.start >= _CHARACTER:
            raise
        return content[: error.start].decode(codec)


def _codec(name: str) -> str | None:
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    if not getattr(found, "_is_text_encoding", True):
        return None
    if found.name in ("iso8859-1", "ascii"):
        return "cp1252"
    # A declaration that could be read cannot have been in UTF-16.
    return "utf-8" if found.name.startswith(("utf-16", "utf-32")) and not name.endswith(("-le", "-be")) else found.name


def mend(document: bytes, *, most: int, depth: int) -> tuple[bytes, list[str]]:
    """Return a document with tags that match, references that are known and characters that are legal; and what was left out."""
    notes: list[str] = []
    if len(document) > most:
        notes.append(f"only the first {most} bytes of a document that must be repaired are read")
    text = document[:most].decode("utf-8", "ignore")
    text, illegal = _ILLEGAL.subn("", text)
    if illegal:
        notes.append(f"{illegal} characters that XML does not allow were left out")
    start = _PROLOG.search(text)
    if start is None:
        return b"", notes
    entities = _declared_entities(text, notes)
    return _Mender(entities, depth).mend(text[start.start() :]).encode("utf-8", "ignore"), notes


def _declared_entities(text: str, notes: list[str]) -> dict[str, str]:
    """Entities that the document declares as plain text; those made of others are left as they are."""
    head = text[: 1 << 16]  # characters: a document type declaration comes first, and is short
    if "<!ENTITY" not in head:
        return {}
    found = {name: a or b for name, a, b in _ENTITY.findall(head)}
    if head.count("<!ENTITY") > len(found):
        notes.append("entities that are made of other entities, or lie elsewhere, are not expanded")
    return found


class _Mender:
    """One pass over a document, tag by tag."""

    def __init__(self, entities: dict[str, str], depth: int) -> None:
        self._entities = entities
        self._depth = depth
        self._room = _GROWTH
        self._looks = _LOOKS
        self._open: list[str] = []
        self._lower: list[str] = []  # the same names in lower case
        self._out: list[str] = []
        self._too_deep = 0

    def mend(self, text: str) -> str:
        """Return the whole document; elements that are open at its end stay open."""
        at = 0
        ended = False
        while at < len(text) and not ended:
            less = text.find("<", at)
            if less < 0:
                less = len(text)
            if less > at:
                self._text(text[at:less])
            at = self._markup(text, less) if less < len(text) else less
            ended = bool(self._out) and not self._open and self._out[-1].startswith("</")
        return "".join(self._out)

    def _markup(self, text: str, at: int) -> int:
        """Take what begins with '<', and return where it ends."""
        if text.startswith("<![CDATA[", at):
            end = text.find("]]>", at)
            end = len(text) if end < 0 else end
            if self._open:
                self._out.append(_escape(text[at + 9 : end]))
            return end + 3
        if text.startswith("<!--", at):
            end = text.find("-->", at + 4)
            return len(text) if end < 0 else end + 3
        if text.startswith(("<?", "<!"), at):
            end = text.find(">", at)
            subset = text.find("[", at, end if end >= 0 else len(text)) if text.startswith("<!DOCTYPE", at) else -1
            if subset >= 0:
                end = text.find("]", subset)
                end = text.find(">", end) if end >= 0 else -1
            return len(text) if end < 0 else end + 1
        tag = _TAG.match(text, at)
        if (tag is None or tag[3].count('"') % 2 or tag[3].count("'") % 2) and self._looks:
            self._looks -= 1
            tag = _QUOTED_TAG.match(text, at, at + _QUOTED) or tag
        if tag is None:
            self._text("<")
            return at + 1
        if tag[1]:
            self._end(tag[2])
        else:
            self._start(tag[2], tag[3])
        return tag.end()

    def _start(self, name: str, rest: str) -> None:
        if name.lower() in ("item", "entry") and name.lower() in self._lower:
            self._end(name)
        empty = rest.endswith("/")
        if len(self._open) >= self._depth:
            self._too_deep += not empty
            return
        seen: dict[str, str] = {}
        for key, double, single, bare in _ATTRIBUTE.findall(rest):
            seen.setdefault(key, self._mended(double or single or bare).replace("<", "&lt;").replace('"', "&quot;"))
        attributes = "".join(f' {key}="{value}"' for key, value in seen.items())
        if empty:
            self._out.append(f"<{name}{attributes}/>")
        else:
            self._open.append(name)
            self._lower.append(name.lower())
            self._out.append(f"<{name}{attributes}>")

    def _end(self, name: str) -> None:
        if self._too_deep:
            self._too_deep -= 1
            return
        name = name.lower()
        while name in self._lower:
            self._out.append(f"</{self._open.pop()}>")
            if self._lower.pop() == name:
                return

    def _text(self, text: str) -> None:
        if self._open:
            self._out.append(self._mended(text).replace("<", "&lt;").replace("]]>", "]]&gt;"))

    def _mended(self, text: str) -> str:
        return _REFERENCE.sub(self._reference, text) if "&" in text else text

    def _reference(self, found: re.Match[str]) -> str:
        decimal, hexadecimal, name = found.groups()
        if name in _PLAIN:
            return found[0]
        if name is not None:
            value = self._entities.get(name)
            if value is None and name in html.entities.name2codepoint:
                value = chr(html.entities.name2codepoint[name])
            if value is None or len(value) > self._room:
                return f"&amp;{name};"
            self._room -= len(value)
            return _escape(value)
        if decimal is None and hexadecimal is None:
            return "&amp;"
        code = int(decimal) if decimal else int(hexadecimal, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000 or _ILLEGAL.match(chr(code)):
            return ""
        return f"&#{code};"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")
