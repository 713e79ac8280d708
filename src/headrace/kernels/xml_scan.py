"""The XML tokeniser: bytes of a document, cut anywhere, to events; well-formedness is checked in the same pass.

The scanner is a machine with a mode that is kept in `state` between calls. It consumes all that it can of `data[:n]` and leaves
`state[POSITION]` at the first byte that it must see again: what is held is never more than a name, a reference or a keyword, for
text, comments, attribute values and the like are consumed in pieces. The caller sets the eight bytes after `n` to zero, which is
no legal character: loops stop there without asking for the end in every step.

An event is three words: (kind | level << 8 | name << 32), then for START and END the position in the document and the
node's number, for TEXT the position in `data` and the length, for CHARACTER the code point. Nodes (elements and attributes)
are numbered in document order. Only names whose flags ask for it make events, so a document costs little where nobody
looks.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import (
    U8,
    U64,
    boolean,
    helper,
    i32,
    i64,
    int64,
    kernel,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    trailing_zeros,
    u8,
    u64,
    void,
)  # fmt: skip

# Kinds of events, and words of an event.
START, END, TEXT, CHARACTER, ATTRIBUTE, ATTRIBUTE_END = 0, 1, 2, 3, 4, 5
EVENT = 3
_ROOM = 10 * EVENT  # words: one turn of the scanner's loop makes fewer events than ten
# Flags of names: events for elements, their texts, and attributes.
AS_ELEMENT, WITH_TEXT, AS_ATTRIBUTE = 1, 2, 4
# Fields of the state.
POSITION, MODE, BACK, DEPTH, ROOTED, DOCTYPES, QUOTE, WANTED, SPACED, ATTRIBUTES = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
NODES, TAGS, TEXTS, NAMES, EVENTS, ERROR, BASE, DECLARED, LITERALS = 10, 11, 12, 13, 14, 15, 16, 17, 18
MAX_NAME, MAX_ATTRIBUTES, DEFAULT, PUBLIC = 19, 20, 21, 22
STATE = 23
# What a call returns.
MORE, FULL, NAMES_FULL, BAD = 0, 1, 2, 3
# Tables of 256 classes of bytes, one after the other.
AS_TEXT, AS_VALUE, AS_NAME, AS_SKIPPED, AS_PUBLIC = 0, 256, 512, 768, 1024
# Classes in text (0: nothing special) ...
LESS, AMPERSAND, BRACKET, RETURN, ILLEGAL, WIDE, HOLD = 1, 2, 3, 4, 5, 6, 7
# ... in attribute values, where the others are as in text ...
QUOTES, SPACE = 3, 4
# ... in names ...
NAME_START, NAME_OTHER, NAME_WIDE = 1, 2, 3
# ... and in what is skipped: comments, processing instructions, CDATA and declarations.
DASH, QUESTION, SKIPPED_BRACKET, SKIPPED_RETURN, SKIPPED_ILLEGAL, SKIPPED_WIDE = 1, 2, 3, 4, 5, 6

# Modes: the first five follow each other in a tag.
CONTENT, TAG, EQUALS, BEFORE_VALUE, VALUE, END_SPACE, COMMENT, TARGET, INSTRUCTION, CDATA = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
DOCTYPE, DOCTYPE_NAME, DOCTYPE_OUTER, DOCTYPE_LITERAL, SUBSET, DECLARATION, DECLARATION_LITERAL, DOCTYPE_AFTER = (
    20, 21, 22, 23, 24, 25, 26, 27)  # fmt: skip

# Errors; headrace.xml.reasons has them in words.
(E_CHARACTER, E_OUTSIDE, E_MARKUP, E_SECOND_ROOT, E_DEPTH, E_LONG, E_MISMATCH, E_TAG, E_SPACE, E_DUPLICATE, E_ATTRIBUTES,
E_EQUALS,
 E_QUOTE, E_LESS, E_REFERENCE, E_ENTITY, E_NUMBER, E_CDATA_END, E_COMMENT, E_TARGET, E_DECLARATION, E_CDATA, E_DOCTYPE, E_SUBSET,
 E_UNFINISHED, E_EMPTY, E_UNOPENED) = range(1, 28)  # fmt: skip

_K = np.uint64(0x9E3779B97F4A7C15)
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_SEVEN_BYTES = np.uint64(0x00FFFFFFFFFFFFFF)
_SIX_BYTES = np.uint64(0x0000FFFFFFFFFFFF)
_CDATA = np.uint64(int.from_bytes(b"[CDATA[", "little"))
_DOCTYPE = np.uint64(int.from_bytes(b"DOCTYPE", "little"))
_SYSTEM = np.uint64(int.from_bytes(b"SYSTEM", "little"))
_PUBLIC = np.uint64(int.from_bytes(b"PUBLIC", "little"))
_ELEMENT = np.uint64(int.from_bytes(b"ELEMENT", "little"))
_ATTLIST = np.uint64(int.from_bytes(b"ATTLIST", "little"))
_ENTITY = np.uint64(int.from_bytes(b"ENTITY", "little"))
_NOTATION = np.uint64(int.from_bytes(b"NOTATION", "little"))


@helper
def _is_space(b):
    return b == 32 or b == 10 or b == 13 or b == 9


@helper
def _equals(word, b):
    """The high bit of each byte of a word that is b, up to the first such byte; bytes above it may be marked by mistake."""
    x = word ^ (np.uint64(b) * _ONES)
    return (x - _ONES) & ~x


@helper
def _below(word, b):
    """The same for bytes below b, of those that are ASCII."""
    return (word - np.uint64(b) * _ONES) & ~word


@helper
def _first(marks):
    """The number of the first byte that is marked."""
    return trailing_zeros(marks) >> 3


@helper
def _marked_in_text(word):
    """Marks for eight bytes of text: '<', '&', ']', controls with tabs and line ends, and what is not ASCII."""
    return (_below(word, 32) | _equals(word, 60) | _equals(word, 38) | _equals(word, 93) | word) & _HIGH


@helper
def _marked_in_value(word):
    """Marks for eight bytes of an attribute's value: quotes, '<', '&', controls, tabs and line ends, what is not ASCII."""
    return (
        _below(word, 32) | _equals(word, 34) | _equals(word, 39) | _equals(word, 60) | _equals(word, 38) | word
    ) & _HIGH


@helper
def _marked_after_name(word):
    """Marks for eight bytes of a name: spaces, controls, '/', '=' and '>', with which nearly all names end."""
    return (_below(word, 33) | _equals(word, 47) | _equals(word, 61) | _equals(word, 62)) & _HIGH


@helper
def _likely_end(text, p):
    """Where the name at p ends if it is followed by what names should be followed by; the zero bytes at the end stop it."""
    marks = _marked_after_name(load_u64(text + p))
    while marks == np.uint64(0):
        p += 8
        marks = _marked_after_name(load_u64(text + p))
    return p + _first(marks)


@helper
def _sequence(text, p, n):
    """The length of the UTF-8 sequence at p: 2 to 4; 0 if it is cut by the end, -1 if it is not legal in XML."""
    a = load_u8(text + p)
    if a < 0xC2 or a > 0xF4:
        return -1
    length = 2 if a < 0xE0 else 3 if a < 0xF0 else 4
    for i in range(1, length):
        if p + i >= n:
            return 0
        b = load_u8(text + p + i)
        if b < 0x80 or b > 0xBF:
            return -1
        if i == 1:
            # overlong forms, surrogates, and code points beyond the last
            if (
                (a == 0xE0 and b < 0xA0)
                or (a == 0xED and b > 0x9F)
                or (a == 0xF0 and b < 0x90)
                or (a == 0xF4 and b > 0x8F)
            ):
                return -1
        elif i == 2 and a == 0xEF and b >= 0xBE and load_u8(text + p + 1) == 0xBF:
            return -1  # U+FFFE and U+FFFF
    return length


@helper
def _code_point(text, p, length):
    a = np.int64(load_u8(text + p))
    value = a & (0x1F if length == 2 else 0x0F if length == 3 else 0x07)
    for i in range(1, length):
        value = (value << 6) | (np.int64(load_u8(text + p + i)) & 0x3F)
    return value


@helper
def _names_start(c):
    """Whether a character outside ASCII may begin a name, by the fifth edition of XML 1.0."""
    if c < 0x300:
        return c >= 0xC0 and c != 0xD7 and c != 0xF7
    if c < 0x2000:
        return c >= 0x370 and c != 0x37E
    if c < 0x3001:
        return c == 0x200C or c == 0x200D or 0x2070 <= c <= 0x218F or 0x2C00 <= c <= 0x2FEF
    return c <= 0xD7FF or 0xF900 <= c <= 0xFDCF or 0xFDF0 <= c <= 0xFFFD or 0x10000 <= c <= 0xEFFFF


@helper
def _name_end(text, p, n, as_name, first):
    """The end of the name that goes on at p, or begins there (`first`); -1 if a sequence is cut by the end of the bytes."""
    while True:
        c = load_u8(as_name + load_u8(text + p))
        if c == NAME_WIDE:
            length = _sequence(text, p, n)
            if length == 0:
                return -1
            if length < 0:
                return p
            point = _code_point(text, p, length)
            if not _names_start(point) and (
                first or not (point == 0xB7 or 0x300 <= point <= 0x36F or 0x203F <= point <= 0x2040)
            ):
                return p
            p += length
        elif c == NAME_START or (c == NAME_OTHER and not first):
            p += 1
        else:
            return p
        first = False


@helper
def _hash(address, length):
    h = np.uint64(length) * _K
    i = 0
    while i + 8 <= length:
        h = (h ^ load_u64(address + i)) * _K
        h ^= h >> np.uint64(29)
        i += 8
    if i < length:
        # The last bytes alone: those after the name are shifted out.
        h = (h ^ (load_u64(address + i) << np.uint64(64 - 8 * (length - i)))) * _K
        h ^= h >> np.uint64(29)
    return h


@helper
def _same(a, b, length):
    """Whether two byte strings agree, eight bytes at a time; up to seven bytes after each are read and left out."""
    i = 0
    while i + 8 <= length:
        if load_u64(a + i) != load_u64(b + i):
            return False
        i += 8
    return i == length or ((load_u64(a + i) ^ load_u64(b + i)) << np.uint64(64 - 8 * (length - i))) == np.uint64(0)


@helper
def _find(address, length, spelt, name_at, name_hash, table, mask):
    """The number of a name, -1 if it has none. Tables are addresses: a call with arrays would take longer than the search."""
    h = _hash(address, length)
    slot = np.int64(h >> np.uint64(20)) & mask
    while True:
        known = np.int64(load_u32(table + 4 * slot))
        if known == 0xFFFFFFFF:
            return np.int64(-1)
        if load_u64(name_hash + 8 * known) == h:
            at = load_i64(name_at + 8 * known)
            if load_i64(name_at + 8 * known + 8) - at == length and _same(spelt + at, address, length):
                return known
        slot = (slot + 1) & mask


@helper
def _add(address, length, state, names, name_at, name_hash, table, flags, seen):
    """Give a new name its number; -1 if there is no room for it."""
    new = state[NAMES]
    at = name_at[new]
    if new >= name_hash.size or at + length + 8 > names.size:
        return np.int64(-1)
    h = _hash(address, length)
    mask = table.size - 1
    slot = np.int64(h >> np.uint64(20)) & mask
    while table[slot] >= 0:
        slot = (slot + 1) & mask
    for i in range(length):
        names[at + i] = load_u8(address + i)
    name_at[new + 1] = at + length
    name_hash[new] = h
    flags[new] = state[DEFAULT]
    seen[new] = -1
    table[slot] = new
    state[NAMES] = new + 1
    return new


@helper
def _reference(text, p, n, as_name):
    """The code point of the reference at p, and where it ends; -1 if it is cut by the end, else minus the number of an error."""
    q = p + 1
    if q >= n:
        return np.int64(-1), q
    if load_u8(text + q) == 35:  # '#'
        q += 1
        base = 10
        if load_u8(text + q) == 120:  # 'x'
            base = 16
            q += 1
        value = np.int64(0)
        digits = 0
        while True:
            b = np.int64(load_u8(text + q))
            if q >= n:
                return np.int64(-1), q
            if 48 <= b <= 57:
                d = b - 48
            elif base == 16 and 97 <= b <= 102:
                d = b - 87
            elif base == 16 and 65 <= b <= 70:
                d = b - 55
            elif b == 59 and digits > 0:
                break
            else:
                return np.int64(-E_REFERENCE), q
            value = min(value * base + d, 0x110000)
            digits += 1
            q += 1
        legal = value >= 32 or value == 9 or value == 10 or value == 13
        if not legal or value > 0x10FFFF or 0xD800 <= value <= 0xDFFF or value == 0xFFFE or value == 0xFFFF:
            return np.int64(-E_NUMBER), q
        return value, q + 1
    end = _name_end(text, q, n, as_name, True)
    if end < 0 or end >= n:
        return np.int64(-1), q
    length = end - q
    if length == 0 or load_u8(text + end) != 59:
        return np.int64(-E_REFERENCE), q
    a, b, c, d = load_u8(text + q), load_u8(text + q + 1), load_u8(text + q + 2), load_u8(text + q + 3)
    value = np.int64(-E_ENTITY)
    if length == 2 and b == 116 and (a == 108 or a == 103):
        value = np.int64(60 if a == 108 else 62)
    elif length == 3 and a == 97 and b == 109 and c == 112:
        value = np.int64(38)
    elif length == 4 and a == 97 and b == 112 and c == 111 and d == 115:
        value = np.int64(39)
    elif length == 4 and a == 113 and b == 117 and c == 111 and d == 116:
        value = np.int64(34)
    return value, end + 1


@helper
def _skip_to(text, p, n, as_skipped, what):
    """Skip legal characters to one of a class and return its position.

    At the end it returns n, or n + 1 + p where a sequence at p is cut by it; -p - 1 for an illegal character at p.
    """
    while True:
        c = load_u8(as_skipped + load_u8(text + p))
        if c == 0:
            p += 1
        elif c == what:
            return p
        elif c == SKIPPED_ILLEGAL:
            return p if p >= n else -p - 1
        elif c == SKIPPED_WIDE:
            length = _sequence(text, p, n)
            if length < 0:
                return -p - 1
            if length == 0:
                return n + 1 + p  # cut: p is what to hold
            p += length
        else:
            p += 1


@helper
def _doctype(text, p, n, state, classes):
    """Go through a document type declaration as far as the bytes go. Declarations inside it are bounded, not read."""
    as_name = classes + AS_NAME
    as_skipped = classes + AS_SKIPPED
    while state[ERROR] == 0 and DOCTYPE <= state[MODE] <= DOCTYPE_AFTER:
        mode = state[MODE]
        if mode == DOCTYPE_LITERAL or mode == DECLARATION_LITERAL:
            b = load_u8(text + p)
            c = load_u8(as_skipped + b)
            if b == state[QUOTE]:
                p += 1
                state[MODE] = DOCTYPE_OUTER if mode == DOCTYPE_LITERAL else DECLARATION
                state[SPACED] = 0
            elif p >= n:
                return p
            elif c == SKIPPED_WIDE:
                length = _sequence(text, p, n)
                if length == 0:
                    return p
                if length < 0 or state[PUBLIC] == 1:
                    state[ERROR] = E_CHARACTER
                else:
                    p += length
            elif c == SKIPPED_ILLEGAL or (state[PUBLIC] == 1 and load_u8(classes + AS_PUBLIC + b) == 0):
                state[ERROR] = E_CHARACTER
            else:
                p += 1
            continue
        while _is_space(load_u8(text + p)):
            p += 1
            state[SPACED] = 1
        if p >= n:
            return p
        b = load_u8(text + p)
        if mode == DOCTYPE:
            if state[SPACED] == 0:
                state[ERROR] = E_DOCTYPE
            state[MODE] = DOCTYPE_NAME
        elif mode == DOCTYPE_NAME:
            end = _name_end(text, p, n, as_name, True)
            if end < 0 or end >= n:
                return p
            if end == p:
                state[ERROR] = E_DOCTYPE
            p = end
            state[SPACED] = 0
            state[LITERALS] = -1  # neither SYSTEM nor PUBLIC was read
            state[MODE] = DOCTYPE_OUTER
        elif mode == DOCTYPE_OUTER or mode == DOCTYPE_AFTER:
            if b == 62 and state[LITERALS] <= 0:
                p += 1
                state[MODE] = CONTENT
            elif mode == DOCTYPE_AFTER:
                state[ERROR] = E_DOCTYPE
            elif b == 91 and state[LITERALS] <= 0:
                p += 1
                state[MODE] = SUBSET
            elif (b == 34 or b == 39) and state[LITERALS] > 0 and state[SPACED] == 1:
                state[QUOTE] = b
                state[PUBLIC] = 1 if state[LITERALS] == 2 else 0
                state[LITERALS] -= 1
                state[MODE] = DOCTYPE_LITERAL
                p += 1
            elif state[LITERALS] < 0 and state[SPACED] == 1 and (b == 83 or b == 80):
                if p + 6 >= n:
                    return p
                word = load_u64(text + p) & _SIX_BYTES
                if (word == _SYSTEM or word == _PUBLIC) and _is_space(load_u8(text + p + 6)):
                    state[LITERALS] = 1 if word == _SYSTEM else 2
                    p += 6
                else:
                    state[ERROR] = E_DOCTYPE
            else:
                state[ERROR] = E_DOCTYPE
        elif mode == SUBSET:
            if b == 93:
                p += 1
                state[MODE] = DOCTYPE_AFTER
            elif b == 37:  # a parameter entity, which is not expanded
                end = _name_end(text, p + 1, n, as_name, True)
                if end < 0 or end >= n:
                    return p
                if end == p + 1 or load_u8(text + end) != 59:
                    state[ERROR] = E_SUBSET
                p = end + 1
            elif b != 60:
                state[ERROR] = E_SUBSET
            else:
                if p + 10 >= n and load_u8(text + p + 1) != 63 and load_u8(text + p + 2) != 45:
                    return p
                if p + 3 >= n:
                    return p
                word = load_u64(text + p + 2)
                if load_u8(text + p + 1) == 63:
                    state[MODE] = TARGET
                    state[BACK] = SUBSET
                    p += 2
                elif load_u8(text + p + 1) != 33:
                    state[ERROR] = E_SUBSET
                elif load_u8(text + p + 2) == 45 and load_u8(text + p + 3) == 45:
                    state[MODE] = COMMENT
                    state[BACK] = SUBSET
                    p += 4
                else:
                    length = 0
                    if word & _SEVEN_BYTES == _ELEMENT or word & _SEVEN_BYTES == _ATTLIST:
                        length = 7
                    elif word & _SIX_BYTES == _ENTITY:
                        length = 6
                    elif word == _NOTATION:
                        length = 8
                    if length == 0 or not _is_space(load_u8(text + p + 2 + length)):
                        state[ERROR] = E_SUBSET
                    else:
                        state[MODE] = DECLARATION
                        state[PUBLIC] = 0
                        p += 2 + length
        else:
            c = load_u8(as_skipped + b)
            if b == 62:
                state[MODE] = SUBSET
                p += 1
            elif b == 34 or b == 39:
                state[QUOTE] = b
                state[MODE] = DECLARATION_LITERAL
                p += 1
            elif b == 60:
                state[ERROR] = E_SUBSET
            elif c == SKIPPED_WIDE:
                length = _sequence(text, p, n)
                if length == 0:
                    return p
                if length < 0:
                    state[ERROR] = E_CHARACTER
                p += max(length, 0)
            elif c == SKIPPED_ILLEGAL:
                state[ERROR] = E_CHARACTER
            else:
                p += 1
    return p


@kernel(int64(u8, int64, boolean, i64, U8, u8, i64, u64, i32, u8, i64, i32, u8, i64))
def scan(
    data, n, final, state, classes, names, name_at, name_hash, table, flags, seen, open_names, open_flags, events
):  # fmt: skip
    """Scan bytes from state[POSITION] on; returns MORE, FULL (of events), NAMES_FULL (and the call is repeated with more
    room) or BAD.

    Names are numbered in a table that the caller can enlarge: name k is names[name_at[k]:name_at[k + 1]], seen[k] is the
    last tag that had it as an attribute. open_names and open_flags are the stack of open elements, whose size is the
    greatest depth.
    """
    text = np.int64(data.ctypes.data)
    spelt = np.int64(names.ctypes.data)
    tables = np.int64(classes.ctypes.data)
    at_names = np.int64(name_at.ctypes.data)
    hashes = np.int64(name_hash.ctypes.data)
    slots = np.int64(table.ctypes.data)
    mask = table.size - 1
    as_text = tables + AS_TEXT
    as_value = tables + AS_VALUE
    as_name = tables + AS_NAME
    as_skipped = tables + AS_SKIPPED
    p = state[POSITION]
    mode = state[MODE]
    depth = state[DEPTH]
    rooted = state[ROOTED]
    texts = state[TEXTS]
    nodes = state[NODES]
    tag = state[TAGS]
    wanted = state[WANTED] == 1
    spaced = state[SPACED] == 1
    base = state[BASE]
    e = state[EVENTS]
    room = events.size - _ROOM
    code = MORE
    bad = 0
    while True:
        if e > room:
            code = FULL
            break
        closing = False
        if mode == CONTENT:
            begin = p
            if depth == 0:
                while _is_space(load_u8(text + p)):
                    p += 1
                if p >= n:
                    break
                if load_u8(text + p) != 60:
                    bad = E_OUTSIDE
                    break
            else:
                while True:
                    marks = _marked_in_text(load_u64(text + p))
                    if marks == np.uint64(0):
                        p += 8
                        continue
                    p += _first(marks)
                    c = load_u8(as_text + load_u8(text + p))
                    if c == LESS or c == AMPERSAND:
                        break
                    if c == RETURN and texts > 0:
                        break
                    if c == WIDE:
                        length = _sequence(text, p, n)
                        if length <= 0:
                            if length < 0:
                                bad = E_CHARACTER
                            c = HOLD
                            break
                        p += length
                    elif c == BRACKET:
                        if load_u8(text + p + 1) == 93:
                            if load_u8(text + p + 2) == 62:
                                bad = E_CDATA_END
                            if p + 2 >= n:
                                c = HOLD
                        elif p + 1 >= n:
                            c = HOLD
                        if c == HOLD or bad != 0:
                            break
                        p += 1
                    elif c == ILLEGAL:
                        if p < n:
                            bad = E_CHARACTER
                        c = HOLD
                        break
                    else:
                        p += 1
                if bad != 0:
                    break
                if texts > 0 and p > begin:
                    events[e] = TEXT
                    events[e + 1] = begin
                    events[e + 2] = p - begin
                    e += EVENT
                if c == HOLD:
                    break
                if c == AMPERSAND:
                    value, end = _reference(text, p, n, as_name)
                    if value == -1:
                        break
                    if value < 0:
                        bad = -value
                        break
                    if texts > 0:
                        events[e] = CHARACTER
                        events[e + 1] = value
                        e += EVENT
                    p = end
                    continue
                if c == RETURN:
                    if p + 1 >= n and not final:
                        break
                    events[e] = CHARACTER
                    events[e + 1] = 10
                    e += EVENT
                    p += 2 if load_u8(text + p + 1) == 10 else 1
                    continue
            b = load_u8(text + p + 1)
            c = load_u8(as_name + b)
            if c == NAME_START or c == NAME_WIDE:
                # A name that was seen before needs no look at its characters: they were legal then.
                q = _likely_end(text, p + 1)
                name = np.int64(-1)
                if q < n:
                    name = _find(text + p + 1, q - p - 1, spelt, at_names, hashes, slots, mask)
                if name < 0:
                    end = _name_end(text, p + 1, n, as_name, True)
                    if end == p + 1:
                        bad = E_MARKUP
                        break
                    if end < 0 or end >= n:
                        break
                    if end != q:
                        bad = E_TAG
                        break
                    if q - p - 1 > state[MAX_NAME]:
                        bad = E_LONG
                        break
                    name = _add(text + p + 1, q - p - 1, state, names, name_at, name_hash, table, flags, seen)
                    if name < 0:
                        code = NAMES_FULL
                        break
                if depth == 0:
                    if rooted == 1:
                        bad = E_SECOND_ROOT
                        break
                    rooted = 1
                if depth >= open_names.size:
                    bad = E_DEPTH
                    break
                f = flags[name]
                open_names[depth] = name
                open_flags[depth] = f
                depth += 1
                if f & AS_ELEMENT:
                    events[e] = START | (depth << 8) | (name << 32)
                    events[e + 1] = base + p
                    events[e + 2] = nodes
                    e += EVENT
                    if f & WITH_TEXT:
                        texts += 1
                nodes += 1
                p = q
                if load_u8(text + p) == 62:
                    p += 1
                    continue
                tag += 1
                state[ATTRIBUTES] = 0
                mode = TAG
                spaced = False
            elif b == 47:
                if depth == 0:
                    bad = E_UNOPENED
                    break
                name = np.int64(open_names[depth - 1])
                at = name_at[name]
                length = name_at[name + 1] - at
                q = p + 2 + length
                if q >= n:
                    break
                if not _same(text + p + 2, spelt + at, length):
                    bad = E_MISMATCH
                    break
                b = load_u8(text + q)
                if b == 62:
                    p = q + 1
                    closing = True
                elif _is_space(b):
                    p = q
                    mode = END_SPACE
                else:
                    bad = E_MISMATCH
                    break
            elif p + 1 >= n:
                break
            elif b == 33:
                b = load_u8(text + p + 2)
                if p + 2 >= n:
                    break
                if b == 45:
                    if p + 3 >= n:
                        break
                    if load_u8(text + p + 3) != 45:
                        bad = E_MARKUP
                        break
                    p += 4
                    mode = COMMENT
                    state[BACK] = CONTENT
                elif p + 9 > n and (b == 91 or b == 68):
                    break
                elif b == 91 and load_u64(text + p + 2) & _SEVEN_BYTES == _CDATA:
                    if depth == 0:
                        bad = E_CDATA
                        break
                    p += 9
                    mode = CDATA
                elif b == 68 and load_u64(text + p + 2) & _SEVEN_BYTES == _DOCTYPE:
                    if rooted == 1 or state[DOCTYPES] == 1:
                        bad = E_DOCTYPE
                        break
                    state[DOCTYPES] = 1
                    p += 9
                    mode = DOCTYPE
                    spaced = False
                else:
                    bad = E_MARKUP
                    break
            elif b == 63:
                p += 2
                mode = TARGET
                state[BACK] = CONTENT
            else:
                bad = E_MARKUP
                break

        if mode == TAG:
            while _is_space(load_u8(text + p)):
                p += 1
                spaced = True
            b = load_u8(text + p)
            if b == 62:
                p += 1
                mode = CONTENT
                continue
            if p >= n:
                break
            if b == 47:
                if p + 1 >= n:
                    break
                if load_u8(text + p + 1) != 62:
                    bad = E_TAG
                    break
                p += 2
                mode = CONTENT
                closing = True
            else:
                c = load_u8(as_name + b)
                if c != NAME_START and c != NAME_WIDE:
                    bad = E_TAG
                    break
                if not spaced:
                    bad = E_SPACE
                    break
                q = _likely_end(text, p)
                name = np.int64(-1)
                if q < n:
                    name = _find(text + p, q - p, spelt, at_names, hashes, slots, mask)
                if name < 0:
                    end = _name_end(text, p, n, as_name, True)
                    if end < 0 or end >= n:
                        break
                    if end != q:
                        bad = E_TAG
                        break
                    if q - p > state[MAX_NAME]:
                        bad = E_LONG
                        break
                    name = _add(text + p, q - p, state, names, name_at, name_hash, table, flags, seen)
                    if name < 0:
                        code = NAMES_FULL
                        break
                if seen[name] == tag:
                    bad = E_DUPLICATE
                    break
                seen[name] = tag
                state[ATTRIBUTES] += 1
                if state[ATTRIBUTES] > state[MAX_ATTRIBUTES]:
                    bad = E_ATTRIBUTES
                    break
                wanted = flags[name] & AS_ATTRIBUTE != 0
                if wanted:
                    events[e] = ATTRIBUTE | ((depth + 1) << 8) | (name << 32)
                    events[e + 1] = base + p
                    events[e + 2] = nodes
                    e += EVENT
                    # An attribute may have to wait for the end of its element, whatever that is called.
                    open_flags[depth - 1] |= AS_ELEMENT
                nodes += 1
                p = q
                mode = EQUALS
        if mode == EQUALS:
            while _is_space(load_u8(text + p)):
                p += 1
            if p >= n:
                break
            if load_u8(text + p) != 61:
                bad = E_EQUALS
                break
            p += 1
            mode = BEFORE_VALUE
        if mode == BEFORE_VALUE:
            while _is_space(load_u8(text + p)):
                p += 1
            if p >= n:
                break
            b = load_u8(text + p)
            if b != 34 and b != 39:
                bad = E_QUOTE
                break
            state[QUOTE] = b
            p += 1
            mode = VALUE
        if mode == VALUE:
            begin = p
            quote = state[QUOTE]
            while True:
                marks = _marked_in_value(load_u64(text + p))
                if marks == np.uint64(0):
                    p += 8
                    continue
                p += _first(marks)
                c = load_u8(as_value + load_u8(text + p))
                if c == QUOTES:
                    if load_u8(text + p) == quote:
                        break
                    p += 1
                elif c == SPACE and not wanted:
                    p += 1
                elif c == WIDE:
                    length = _sequence(text, p, n)
                    if length <= 0:
                        if length < 0:
                            bad = E_CHARACTER
                        c = HOLD
                        break
                    p += length
                elif c == ILLEGAL:
                    if p < n:
                        bad = E_CHARACTER
                    c = HOLD
                    break
                elif c == LESS:
                    bad = E_LESS
                    break
                else:
                    break
            if bad != 0:
                break
            if wanted and p > begin:
                events[e] = TEXT
                events[e + 1] = begin
                events[e + 2] = p - begin
                e += EVENT
            if c == HOLD:
                break
            if c == QUOTES:
                p += 1
                if wanted:
                    events[e] = ATTRIBUTE_END
                    e += EVENT
                spaced = False
                mode = TAG
            elif c == AMPERSAND:
                value, end = _reference(text, p, n, as_name)
                if value == -1:
                    break
                if value < 0:
                    bad = -value
                    break
                if wanted:
                    events[e] = CHARACTER
                    events[e + 1] = value
                    e += EVENT
                p = end
            else:
                b = load_u8(text + p)
                if b == 13 and p + 1 >= n and not final:
                    break
                events[e] = CHARACTER
                events[e + 1] = 32
                e += EVENT
                p += 2 if b == 13 and load_u8(text + p + 1) == 10 else 1
            continue

        if mode == END_SPACE:
            while _is_space(load_u8(text + p)):
                p += 1
            if p >= n:
                break
            if load_u8(text + p) != 62:
                bad = E_MISMATCH
                break
            p += 1
            mode = CONTENT
            closing = True
        if closing:
            depth -= 1
            f = open_flags[depth]
            if f & AS_ELEMENT:
                events[e] = END | ((depth + 1) << 8) | (np.int64(open_names[depth]) << 32)
                events[e + 1] = base + p
                events[e + 2] = 0
                e += EVENT
                if f & WITH_TEXT:
                    texts -= 1
            continue
        if mode == COMMENT or mode == INSTRUCTION:
            ends = DASH if mode == COMMENT else QUESTION
            q = _skip_to(text, p, n, as_skipped, ends)
            if q < 0:
                p = -q - 1
                bad = E_CHARACTER
                break
            if q >= n:
                p = q - n - 1 if q > n else n
                break
            p = q
            if p + 1 >= n:
                break
            if mode == INSTRUCTION:
                if load_u8(text + p + 1) != 62:
                    p += 1
                else:
                    p += 2
                    mode = state[BACK]
            elif load_u8(text + p + 1) != 45:
                p += 1
            else:
                if p + 2 >= n:
                    break
                if load_u8(text + p + 2) != 62:
                    bad = E_COMMENT
                    break
                p += 3
                mode = state[BACK]
        elif mode == TARGET:
            q = _name_end(text, p, n, as_name, True)
            if q < 0 or q >= n:
                break
            if q == p:
                bad = E_TARGET
                break
            if q - p > state[MAX_NAME]:
                bad = E_LONG
                break
            if (
                q - p == 3
                and load_u8(text + p) | 32 == 120
                and load_u8(text + p + 1) | 32 == 109
                and load_u8(text + p + 2) | 32 == 108
                and not (state[DECLARED] == 1 and base + p == 2)
            ):
                bad = E_DECLARATION
                break
            b = load_u8(text + q)
            if b == 63:
                if q + 1 >= n:
                    break
                if load_u8(text + q + 1) != 62:
                    bad = E_TARGET
                    break
                p = q + 2
                mode = state[BACK]
            elif _is_space(b):
                p = q + 1
                mode = INSTRUCTION
            else:
                bad = E_TARGET
                break
        elif mode == CDATA:
            begin = p
            done = False
            stop = False
            while True:
                c = load_u8(as_skipped + load_u8(text + p))
                if c == SKIPPED_BRACKET:
                    if p + 1 >= n or (load_u8(text + p + 1) == 93 and p + 2 >= n):
                        stop = True
                        break
                    if load_u8(text + p + 1) == 93 and load_u8(text + p + 2) == 62:
                        done = True
                        break
                    p += 1
                elif c == SKIPPED_RETURN and texts > 0:
                    break
                elif c == SKIPPED_WIDE:
                    length = _sequence(text, p, n)
                    if length < 0:
                        bad = E_CHARACTER
                    if length <= 0:
                        stop = True
                        break
                    p += length
                elif c == SKIPPED_ILLEGAL:
                    if p < n:
                        bad = E_CHARACTER
                    stop = True
                    break
                else:
                    p += 1
            if bad != 0:
                break
            if texts > 0 and p > begin:
                events[e] = TEXT
                events[e + 1] = begin
                events[e + 2] = p - begin
                e += EVENT
            if stop:
                break
            if done:
                p += 3
                mode = CONTENT
            else:
                if p + 1 >= n and not final:
                    break
                events[e] = CHARACTER
                events[e + 1] = 10
                e += EVENT
                p += 2 if load_u8(text + p + 1) == 10 else 1
        elif mode >= DOCTYPE:
            state[MODE] = mode
            state[SPACED] = spaced
            p = _doctype(text, p, n, state, tables)
            bad = state[ERROR]
            mode = state[MODE]
            spaced = state[SPACED] == 1
            if bad != 0 or mode >= DOCTYPE:
                break
    if code == MORE and bad == 0:
        if n - p > state[MAX_NAME] + 16:
            bad = E_LONG
        elif final:
            if p < n or mode != CONTENT or depth > 0:
                bad = E_UNFINISHED
                p = n
            elif rooted == 0:
                bad = E_EMPTY
    state[POSITION] = p
    state[MODE] = mode
    state[DEPTH] = depth
    state[ROOTED] = rooted
    state[TEXTS] = texts
    state[NODES] = nodes
    state[TAGS] = tag
    state[WANTED] = wanted
    state[SPACED] = spaced
    state[EVENTS] = e
    state[ERROR] = bad
    return BAD if bad != 0 else code


@kernel(void(U64, i32))
def number_names(hashes, table):
    """Fill a new table with the names that have these hashes."""
    table[:] = -1
    mask = table.size - 1
    for k in range(hashes.size):
        slot = np.int64(hashes[k] >> np.uint64(20)) & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = k


@kernel(void(u8, int64, int64, i64))
def walk(data, start, stop, place):
    """Count lines and, in the last of them, characters of bytes: place is (lines before, characters before, the byte before).

    A line ends with a line feed, or with a carriage return that no line feed follows, which is known when the next byte is read.
    """
    if start >= stop:
        return
    lines = 0
    if data[start] == 10 or place[2] == 13:
        lines = 1
    for i in range(start + 1, stop):
        lines += (data[i] == 10) | ((data[i - 1] == 13) & (data[i] != 10))
    first = start
    if lines > 0:
        place[0] += lines
        place[1] = 0
        first = stop
        while first > start and not (
            data[first - 1] == 10 or (first < stop and data[first - 1] == 13 and data[first] != 10)
        ):
            first -= 1
    characters = 0
    for i in range(first, stop):
        characters += (data[i] & 0xC0) != 0x80
    place[1] += characters
    place[2] = data[stop - 1]
