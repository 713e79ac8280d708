"""HTML of feeds made harmless: only tags and attributes of a list stay, tags are written anew, and links have harmless schemes.

Names are known by their hashes, in sorted arrays: `tags` and `tag_kinds`, `attributes` and `attribute_kinds`, `schemes`. Text
between tags stays as it is, byte for byte.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import helper

# Kinds of elements: not in the list, kept, kept and without an end tag, left out with all that is in them, known and left out.
UNKNOWN, KEPT, VOID, EMPTIED, DROPPED = 0, 1, 2, 3, 4
# Kinds of attributes: not in the list, kept, kept if it is a link with a harmless scheme.
ATTRIBUTE, LINK = 1, 2
# What a link is.
REFUSED, ABSOLUTE, RELATIVE = 0, 1, 2
_BASIS = np.uint64(0xCBF29CE484222325)
_REFERENCES = np.frombuffer(b"&quot;&lt;&gt;", np.uint8)
_PRIME = np.uint64(0x100000001B3)


@helper
def lower(b):
    return b + 32 if 65 <= b <= 90 else b


@helper
def _letter(b):
    return 97 <= (b | 32) <= 122


@helper
def _space(b):
    return b == 32 or (9 <= b <= 13 and b != 11)


@helper
def _name_hash(text, start, end):
    """FNV-1a of a name in lower case."""
    h = _BASIS
    for i in range(start, end):
        h = (h ^ np.uint64(lower(text[i]))) * _PRIME
    return h


@helper
def _find(hashes, h):
    low, high = 0, hashes.size
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < h:
            low = middle + 1
        else:
            high = middle
    return low if low < hashes.size and hashes[low] == h else -1


@helper
def link_kind(text, start, end, escaped, schemes):
    """Whether a link is relative, absolute with a harmless scheme, or refused. `escaped`: it may hold references, as in HTML."""
    h = _BASIS
    length = 0
    for i in range(start, end):
        b = lower(text[i])
        if b <= 32:  # browsers pass over them, wherever they are
            continue
        if b == 58:
            return ABSOLUTE if length > 0 and _find(schemes, h) >= 0 else REFUSED
        if b == 38 and escaped:
            return REFUSED  # a reference may stand for any character of a scheme
        if not (97 <= b <= 122 or (length > 0 and (48 <= b <= 57 or b == 43 or b == 45 or b == 46))):
            return RELATIVE
        h = (h ^ np.uint64(b)) * _PRIME
        length += 1
    return RELATIVE


@helper
def _put(out, o, b):
    out[o] = b
    return o + 1


@helper
def _put_escaped(out, o, b):
    """Write a character of an attribute's value that will be in double quotes."""
    if b != 34 and b != 60 and b != 62:
        out[o] = b
        return o + 1
    at, count = (0, 6) if b == 34 else (6, 4) if b == 60 else (10, 4)
    for i in range(count):
        out[o + i] = _REFERENCES[at + i]
    return o + count


@helper
def _same_name(text, p, end, start, length):
    """Whether the name at p is that at start, and ends as the name of a tag does."""
    if p + length > end:
        return False
    for i in range(length):
        if lower(text[p + i]) != lower(text[start + i]):
            return False
    return p + length == end or _space(text[p + length]) or text[p + length] == 47 or text[p + length] == 62


@helper
def _attributes(text, p, end, o, write, attributes, attribute_kinds, schemes):
    """Write the attributes of a tag that stay; where the tag (-1: nowhere) and they end, how many it has, and refused."""
    count = 0
    refused = 0
    while True:
        while p < end and (_space(text[p]) or text[p] == 47):
            p += 1
        if p >= end:
            return np.int64(-1), o, count, refused
        if text[p] == 62:
            return p + 1, o, count, refused
        name = p
        p += 1
        while p < end and not (_space(text[p]) or text[p] == 47 or text[p] == 62 or text[p] == 61):
            p += 1
        name_end = p
        count += 1
        while p < end and _space(text[p]):
            p += 1
        value = value_end = p
        has_value = False
        if p < end and text[p] == 61:
            has_value = True
            p += 1
            while p < end and _space(text[p]):
                p += 1
            if p < end and (text[p] == 34 or text[p] == 39):
                quote = text[p]
                p += 1
                value = p
                while p < end and text[p] != quote:
                    p += 1
                if p >= end:
                    return np.int64(-1), o, count, refused
                value_end = p
                p += 1
            else:
                value = p
                while p < end and not (_space(text[p]) or text[p] == 62):
                    p += 1
                value_end = p
        k = _find(attributes, _name_hash(text, name, name_end))
        kind = attribute_kinds[k] if k >= 0 else 0
        if kind == LINK and link_kind(text, value, value_end, True, schemes) == REFUSED:
            kind = np.uint8(0)
            refused += 1
        if kind == 0 and name_end - name > 2 and lower(text[name]) == 111 and lower(text[name + 1]) == 110:
            refused += 1  # on…=: a script
        if kind == 0 or not write:
            continue
        o = _put(text, o, np.uint8(32))
        for i in range(name, name_end):
            o = _put(text, o, lower(text[i]))
        if has_value:
            o = _put(text, o, np.uint8(61))
            o = _put(text, o, np.uint8(34))
            for i in range(value, value_end):
                o = _put_escaped(text, o, text[i])
            o = _put(text, o, np.uint8(34))


@helper
def _gap(text, o, begin):
    """Keep a '<' that stays as text apart from what follows when something between them is left out: they would be a tag."""
    if o > begin and (text[o - 1] == 60 or (o - 1 > begin and text[o - 1] == 47 and text[o - 2] == 60)):
        text[o] = 32
        return o + 1
    return o


@helper
def make_harmless(text, start, end, o, plain, tags, tag_kinds, attributes, attribute_kinds, schemes):
    """Write text[start:end] to text[o:], which lies after it, without what may do harm; where that ends, and what was refused.

    There must be room for seven times as many bytes. `plain` texts keep a tag that is not of HTML, such as <T>, if it has no
    attributes.
    """
    refused = 0
    p = start
    begin = o
    while p < end:
        b = text[p]
        if b != 60:
            o = _put(text, o, b)
            p += 1
            continue
        after = text[p + 1] if p + 1 < end else np.uint8(0)
        if after == 33 or after == 63:  # a comment, a declaration, an instruction
            o = _gap(text, o, begin)
            if p + 3 < end and after == 33 and text[p + 2] == 45 and text[p + 3] == 45:
                q = p + 4
                while q + 2 < end and not (text[q] == 45 and text[q + 1] == 45 and text[q + 2] == 62):
                    q += 1
                p = q + 3
            else:
                while p < end and text[p] != 62:
                    p += 1
                p += 1
            continue
        closing = after == 47
        name = p + 2 if closing else p + 1
        if name >= end or not _letter(text[name]):
            if closing and not plain:
                o = _gap(text, o, begin)
                while p < end and text[p] != 62:
                    p += 1
                p += 1
            else:
                o = _put(text, o, b)
                p += 1
            continue
        name_end = name
        while name_end < end and not (_space(text[name_end]) or text[name_end] == 47 or text[name_end] == 62):
            name_end += 1
        k = _find(tags, _name_hash(text, name, name_end))
        kind = tag_kinds[k] if k >= 0 else UNKNOWN
        before = o
        o = _put(text, o, b)
        if closing:
            o = _put(text, o, np.uint8(47))
        for i in range(name, name_end):
            o = _put(text, o, lower(text[i]))
        q, o, count, bad = _attributes(
            text, name_end, end, o, not closing and (kind == KEPT or kind == VOID), attributes, attribute_kinds, schemes
        )
        verbatim = plain and kind == UNKNOWN and count == 0
        if q < 0 and not verbatim:
            # The tag has no end: browsers leave out all that follows, and so does this.
            return before, refused + bad + 1
        refused += bad
        if verbatim:
            o = before
            stop = end if q < 0 else q
            for i in range(p, stop):
                o = _put(text, o, text[i])
            p = stop
            continue
        if kind == KEPT or (kind == VOID and not closing):
            o = _put(text, o, np.uint8(62))
        else:
            o = _gap(text, before, begin)
        p = q
        if kind == EMPTIED and not closing:
            refused += 1
            while p < end and not (
                text[p] == 60
                and p + 1 < end
                and text[p + 1] == 47
                and _same_name(text, p + 2, end, name, name_end - name)
            ):
                p += 1
    return o, refused
