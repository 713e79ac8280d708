"""Texts of a feed's elements: pieces of a document put together, with the tags of inline markup, trimmed, cut and told apart."""

from __future__ import annotations

import numpy as np

from headrace.kernels.feed_html import lower
from headrace.kernels.jit import U8, helper, i32, i64, int64, kernel, u8
from headrace.kernels.xml_scan import ATTRIBUTE, ATTRIBUTE_END, CHARACTER, END, EVENT, START, TEXT

SPARE = 4096  # bytes of room that every step leaves: names of tags have fewer
# How text is written: as it is, between tags, in an attribute's value.
AS_IS, IN_CONTENT, IN_VALUE = 0, 1, 2
_WINDOWS = np.array(
    [0x20AC, 0x81, 0x201A, 0x192, 0x201E, 0x2026, 0x2020, 0x2021, 0x2C6, 0x2030, 0x160, 0x2039, 0x152, 0x8D, 0x17D, 0x8F,
     0x90, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x2DC, 0x2122, 0x161, 0x203A, 0x153, 0x9D, 0x17E, 0x178],
    np.int64,
)  # fmt: skip
"""Characters 128 to 159 of windows-1252, which feeds mean by &#128; to &#159;."""
_REFERENCES = np.frombuffer(b"&amp;&lt;&gt;&quot;", np.uint8)


@helper
def _is_special(b, escaped):
    return escaped != AS_IS and (b == 38 or b == 60 or b == 62 or (b == 34 and escaped == IN_VALUE))


@helper
def _put_reference(texts, t, b):
    at, count = (0, 5) if b == 38 else (5, 4) if b == 60 else (9, 4) if b == 62 else (13, 6)
    for i in range(count):
        texts[t + i] = _REFERENCES[at + i]
    return t + count


@helper
def put_bytes(texts, t, data, at, length, escaped):
    """Append bytes of the document to texts[:t]; returns where they end."""
    if escaped == AS_IS:
        texts[t : t + length] = data[at : at + length]
        return t + length
    for i in range(at, at + length):
        b = data[i]
        if _is_special(b, escaped):
            t = _put_reference(texts, t, b)
        else:
            texts[t] = b
            t += 1
    return t


@helper
def put_character(texts, t, c, escaped):
    """Append a character by its number, as UTF-8."""
    if 128 <= c < 160:
        c = _WINDOWS[c - 128]
    if c < 128:
        if _is_special(c, escaped):
            return _put_reference(texts, t, c)
        texts[t] = c
        return t + 1
    if c < 0x800:
        texts[t] = 0xC0 | (c >> 6)
        texts[t + 1] = 0x80 | (c & 0x3F)
        return t + 2
    if c < 0x10000:
        texts[t] = 0xE0 | (c >> 12)
        texts[t + 1] = 0x80 | ((c >> 6) & 0x3F)
        texts[t + 2] = 0x80 | (c & 0x3F)
        return t + 3
    texts[t] = 0xF0 | (c >> 18)
    texts[t + 1] = 0x80 | ((c >> 12) & 0x3F)
    texts[t + 2] = 0x80 | ((c >> 6) & 0x3F)
    texts[t + 3] = 0x80 | (c & 0x3F)
    return t + 4


@helper
def put_value(words, i, n, data, texts, t, escaped):
    """Append the value of an attribute whose texts begin with event i; the next event, and where they end, -1: no room."""
    while i < n:
        kind = words[i] & 0xFF
        if kind == TEXT:
            if t + 6 * words[i + 2] + SPARE > texts.size:
                return i, np.int64(-1)
            t = put_bytes(texts, t, data, words[i + 1], words[i + 2], escaped)
        elif kind == CHARACTER:
            if t + SPARE > texts.size:
                return i, np.int64(-1)
            t = put_character(texts, t, words[i + 1], escaped)
        else:
            break
        i += EVENT
    if i < n and words[i] & 0xFF == ATTRIBUTE_END:
        i += EVENT
    return i, t


@helper
def skip_value(words, i, n):
    """Pass over the value of an attribute."""
    while i < n and (words[i] & 0xFF == TEXT or words[i] & 0xFF == CHARACTER):
        i += EVENT
    if i < n and words[i] & 0xFF == ATTRIBUTE_END:
        i += EVENT
    return i


@helper
def _put_name(texts, t, data, at):
    """Append the local part of the name in the tag at a position."""
    end = at
    while end < data.size and not (data[end] <= 32 or data[end] == 47 or data[end] == 62):
        if data[end] == 58:
            at = end + 1
        end += 1
    return put_bytes(texts, t, data, at, end - at, AS_IS)


@helper
def put_start_tag(words, i, n, data, declares, shown, texts, t):
    """Append the tag that starts with event i, if it is to be shown; the event after it, and where it ends, -1: no room."""
    position = words[i + 1]
    i += EVENT
    if shown:
        if t + SPARE > texts.size:
            return i, np.int64(-1)
        texts[t] = 60
        t = _put_name(texts, t + 1, data, position + 1)
    while i < n and words[i] & 0xFF == ATTRIBUTE:
        at = words[i + 1]
        declared = declares[words[i] >> 32] >= 0
        i += EVENT
        if not shown or declared:
            i = skip_value(words, i, n)
            continue
        size = 0
        while data[at + size] != 61 and data[at + size] > 32:
            size += 1
        if t + size + SPARE > texts.size:
            return i, np.int64(-1)
        texts[t] = 32
        t = put_bytes(texts, t + 1, data, at, size, AS_IS)
        texts[t] = 61
        texts[t + 1] = 34
        i, t = put_value(words, i, n, data, texts, t + 2, IN_VALUE)
        if t < 0:
            return i, t
        texts[t] = 34
        t += 1
    if shown:
        texts[t] = 62
        t += 1
    return i, t


@helper
def put_end_tag(data, position, texts, t):
    """Append the tag that ends before a position of the document: an end tag, or that of an empty element."""
    at = position - 1
    while data[at] != 60:
        at -= 1
    texts[t] = 60
    texts[t + 1] = 47
    t = _put_name(texts, t + 2, data, at + 2 if data[at + 1] == 47 else at + 1)
    texts[t] = 62
    return t + 1


@helper
def has_children(words, i, n):
    """Whether the element that is open before event i has elements in it."""
    while i < n:
        kind = words[i] & 0xFF
        if kind == START:
            return True
        if kind == END:
            return False
        i += EVENT
    return False


@helper
def trim(texts, start, end):
    """The part of a text without spaces at both ends."""
    while start < end and texts[start] <= 32:
        start += 1
    while end > start and texts[end - 1] <= 32:
        end -= 1
    return start, end


@helper
def whole(texts, start, end):
    """Where a text that was cut ends, without the part of its last character."""
    p = end
    while p > start and end - p < 4 and texts[p - 1] & 0xC0 == 0x80:
        p -= 1
    if p == start:
        return start
    lead = texts[p - 1]
    length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    return end if end - (p - 1) == length else p - 1


@helper
def word_hash(texts, start, end):
    """A number by which short words are told apart: FNV-1a of their letters in lower case."""
    h = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        h = (h ^ np.uint64(lower(texts[i]))) * np.uint64(0x100000001B3)
    return h


@kernel(int64(U8, i64, int64, u8, i32))
def gather(texts, spans, count, out, offsets):
    """Copy texts that lie apart one after the other; spans are start and length of each, -1 as the start if there is none."""
    at = np.int64(0)
    offsets[0] = 0
    for i in range(count):
        start = spans[2 * i]
        length = spans[2 * i + 1] if start >= 0 else 0
        out[at : at + length] = texts[start : start + length]
        at += length
        offsets[i + 1] = at
    return at
