"""The twig machine: events of a document to fragments. [PQP] §7.1.2, after TwigM (Chen, Davidson, Zheng, ICDE 2006)

Every machine node has a stack of records, one for each open element that it matches; the stack is a chain through the records.
Query nodes of one or many twigs that are reached by the same steps share a machine node, of which each is a member, with a
test of its own, and children of its own that it requires. A record has lists of cells, one for each kind of member of its
node's children: the first and the last cell, and a cell leads to a record. At its end tag a record leaves its stack. For every
member whose test holds and whose required lists are not empty it is a partial solution, and a cell that leads to it is added to
the member's list in the record of the innermost parent that it fits. A list over a descendant edge is spliced to that of the
next outer record when its own record ends, so that inner and outer record share it, and a solution is held once, however deep
it lies.

    top[S] -> S2 -> S1          S1: T [T1 .. T1]   F []                after </S2>: S1: T [T1 .. T2], where T2 is in
    top[T] -> none              S2: T [T2 .. T2]   F [F1 .. F1]        the list of S2 too, whose first and last is T2

The products of a root record's lists are enumerated like the digits of a counter, and written as rows until the rows are full.
Records lie in a pool in the order of their start tags, with cells among them, so that `collect` can slide those together that
are still reachable, and their texts with them.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I32, I64, U8, copy_bytes, helper, i32, i64, int64, kernel, load_u8, u8, void
from headrace.kernels.xml_scan import ATTRIBUTE, CHARACTER, END, EVENT, START, TEXT

# Fields of a machine node. Its slots are its lists, each of which says whether it is over a descendant edge.
# EMITS says that its members are roots of twigs, though it may lie under machine nodes that only say where.
PARENT, CHILD_EDGE, SLOTS_AT, LISTS_OF, NEEDS_TEXT, NEEDS_XML, FALLS_BACK, ANY_LEVEL, MEMBERS_AT, MEMBERS_OF, EMITS = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)  # fmt: skip
NODE = 11
# Fields of a member: the list of the parent's record that it goes to, or a root's twig; its test; the lists that it requires.
TARGET, TEST, LITERAL, REQUIRED_AT, REQUIRED_OF = 0, 1, 2, 3, 4
MEMBER = 5
# Fields of a query node: its parent among those of its twig, and its list in the parent's record.
QUERY_PARENT, QUERY_LIST = 0, 1
QUERY_FIELDS = 2
# Tests of string values; the last six compare numbers.
NO_TEST, NEVER, SAME_TEXT, OTHER_TEXT, CONTAINS, EQUAL, UNEQUAL, BELOW, AT_MOST, ABOVE, AT_LEAST = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
)
# Fields of a literal: a text, or the two ends of the decimal numbers that round to a number, which belong to them or not.
TEXT_AT, TEXT_LENGTH, INCLUSIVE, LOW, HIGH = 0, 1, 2, 3, 7
END_SIGN, END_AT, END_WHOLE, END_LENGTH = 0, 1, 2, 3  # sign 2: infinite
LITERAL_FIELDS = 11
# Fields of a twig, and of an output column.
FIRST, NODES_OF, COLUMNS_AT, COLUMNS_OF, WIDTH = 0, 1, 2, 3, 4
TWIG_FIELDS = 5
AS_ORDER, AS_STRING, AS_XML = 0, 1, 2
# Fields of a record, which its lists (first, last) follow. XML_START is IN_VALUES for an attribute.
OF_NODE, FORWARD, NEXT, LEVEL, ORDER, TEXT_START, TEXT_END, XML_START, XML_END, LISTS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
IN_VALUES = -2
# Fields of a cell; the first three are those of a record, where OF_NODE is IS_CELL.
RECORD, CELL = 3, 4
IS_CELL = -1
# Fields of the machine's state.
AT_EVENT, AT_NODE, POOL, TEXTS, VALUES, XMLS, XML_POSITION, OPEN, OPEN_TEXTS, OPEN_XMLS, PENDING = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
)
EMITTING, STARTED, ROWS, WORDS, OUT, IN_ATTRIBUTE, VALUE_START, ASKED, MADE = 11, 12, 13, 14, 15, 16, 17, 18, 19
ATTRIBUTE_WORD, ATTRIBUTE_ORDER, ROOT, AT_MEMBER, PENDING_NEEDS, EMITTED_TWIG = 20, 21, 22, 23, 24, 25
MACHINE = 26
# What a call returns: what must be emptied or enlarged before it is called again; ASKED says by how much.
DONE, ROWS_FULL, OUT_FULL, POOL_FULL, TEXTS_FULL, VALUES_FULL, XMLS_FULL, PENDING_FULL = 0, 1, 2, 3, 4, 5, 6, 7
WAITING = 3  # words of an attribute that stands for a child element until its element ends: level, machine node, record


@helper
def _put(target, at, c):
    """Write a code point as UTF-8 into an array; returns where it ends."""
    if c < 0x80:
        target[at] = c
        return at + 1
    if c < 0x800:
        target[at] = 0xC0 | (c >> 6)
        target[at + 1] = 0x80 | (c & 0x3F)
        return at + 2
    if c < 0x10000:
        target[at] = 0xE0 | (c >> 12)
        target[at + 1] = 0x80 | ((c >> 6) & 0x3F)
        target[at + 2] = 0x80 | (c & 0x3F)
        return at + 3
    target[at] = 0xF0 | (c >> 18)
    target[at + 1] = 0x80 | ((c >> 12) & 0x3F)
    target[at + 2] = 0x80 | ((c >> 6) & 0x3F)
    target[at + 3] = 0x80 | (c & 0x3F)
    return at + 4


@helper
def _is_space(b):
    return b == 32 or b == 10 or b == 13 or b == 9


@helper
def _magnitude(whole, whole_length, fraction, fraction_length, end, end_whole, end_length):
    """Compare digits of a text with digits of a literal, neither with zeros at its ends: -1, 0 or 1."""
    if whole_length != end_whole:
        return -1 if whole_length < end_whole else 1
    for i in range(whole_length):
        a, b = load_u8(whole + i), load_u8(end + i)
        if a != b:
            return -1 if a < b else 1
    others = end_length - end_whole
    for i in range(min(fraction_length, others)):
        a, b = load_u8(fraction + i), load_u8(end + end_whole + i)
        if a != b:
            return -1 if a < b else 1
    if fraction_length == others:
        return 0
    return -1 if fraction_length < others else 1


@helper
def _against(sign, whole, whole_length, fraction, fraction_length, literals, at, digits):
    """Compare a decimal number with an end of a literal's interval: -1, 0 or 1."""
    other = literals[at + END_SIGN]
    if other == 2:
        return -1
    if other == -2:
        return 1
    if sign != other:
        return -1 if sign < other else 1
    if sign == 0:
        return 0
    found = _magnitude(
        whole, whole_length, fraction, fraction_length,
        digits + literals[at + END_AT], literals[at + END_WHOLE], literals[at + END_LENGTH],
    )  # fmt: skip
    return found * sign


@helper
def _number(address, length, literals, literal, digits):
    """Compare number(text) of XPath 1.0 with a literal number: -1, 0, 1, or 2 if the text is not a number.

    The text is never rounded: it is compared, digit by digit, with the ends of the interval that rounds to the literal.
    """
    p = address
    stop = address + length
    while p < stop and _is_space(load_u8(p)):
        p += 1
    while stop > p and _is_space(load_u8(stop - 1)):
        stop -= 1
    sign = 1
    if p < stop and load_u8(p) == 45:
        sign = -1
        p += 1
    whole = p
    while p < stop and 48 <= load_u8(p) <= 57:
        p += 1
    whole_end = p
    fraction = p
    fraction_end = p
    if p < stop and load_u8(p) == 46:
        p += 1
        fraction = p
        while p < stop and 48 <= load_u8(p) <= 57:
            p += 1
        fraction_end = p
    if p < stop or (whole_end == whole and fraction_end == fraction):
        return 2
    while whole < whole_end and load_u8(whole) == 48:
        whole += 1
    while fraction_end > fraction and load_u8(fraction_end - 1) == 48:
        fraction_end -= 1
    if whole == whole_end and fraction == fraction_end:
        sign = 0
    a, b = whole_end - whole, fraction_end - fraction
    inclusive = literals[literal + INCLUSIVE] == 1
    low = _against(sign, whole, a, fraction, b, literals, literal + LOW, digits)
    if low < 0 or (low == 0 and not inclusive):
        return -1
    high = _against(sign, whole, a, fraction, b, literals, literal + HIGH, digits)
    if high > 0 or (high == 0 and not inclusive):
        return 1
    return 0


@helper
def _holds(test, address, length, literals, literal, digits):
    """Whether a string value passes a test."""
    if test == NEVER:
        return False
    if test >= EQUAL:
        found = _number(address, length, literals, literal, digits)
        if found == 2:
            return test == UNEQUAL
        return (
            (test == EQUAL and found == 0)
            or (test == UNEQUAL and found != 0)
            or (test == BELOW and found < 0)
            or (test == AT_MOST and found <= 0)
            or (test == ABOVE and found > 0)
            or (test == AT_LEAST and found >= 0)
        )
    other = digits + literals[literal + TEXT_AT]
    size = literals[literal + TEXT_LENGTH]
    last = length - size if test == CONTAINS else 0
    if test != CONTAINS and length != size:
        return test == OTHER_TEXT
    for begin in range(last + 1):
        i = 0
        while i < size and load_u8(address + begin + i) == load_u8(other + i):
            i += 1
        if i == size:
            return test != OTHER_TEXT
    return test == OTHER_TEXT


@helper
def _outer(pool, e, level):
    """The innermost record of a stack that begins at e and lies above a level; -1 if there is none."""
    while e >= 0 and pool[e + LEVEL] >= level:
        e = pool[e + NEXT]
    return e


@helper
def _next_member(pool, record, nodes, members, required, literals, digits, texts, values, k):
    """The first member of a record's node, from number k on, for which the record is a partial solution; their number if none is.

    All members are tried in one call, since a node of a thousand twigs may have many and nearly all of them fail.
    """
    node = pool[record + OF_NODE] * NODE
    count = nodes[node + MEMBERS_OF]
    begin = pool[record + TEXT_START]
    length = pool[record + TEXT_END] - begin
    address = begin + np.int64((values if pool[record + XML_START] == IN_VALUES else texts).ctypes.data)
    while k < count:
        member = (nodes[node + MEMBERS_AT] + k) * MEMBER
        test = members[member + TEST]
        literal = members[member + LITERAL]
        if test == SAME_TEXT and literals[literal + TEXT_LENGTH] != length:
            k += 1
            continue
        i = members[member + REQUIRED_AT]
        stop = i + members[member + REQUIRED_OF]
        while i < stop and pool[record + LISTS + 2 * required[i]] >= 0:
            i += 1
        if i == stop and (test == NO_TEST or _holds(test, address, length, literals, literal, digits)):
            break
        k += 1
    return k


@helper
def _settle(m, pool, nodes, members, required, literals, digits, texts, values, top, record, level):
    """Add a record that has ended to a list of its parent's record for each member that it satisfies; says if there is one."""
    node = pool[record + OF_NODE] * NODE
    holder = _outer(pool, top[nodes[node + PARENT]], level)
    settled = False
    k = 0
    while True:
        k = _next_member(pool, record, nodes, members, required, literals, digits, texts, values, k)
        if k == nodes[node + MEMBERS_OF]:
            return settled
        settled = True
        cell = m[POOL]
        m[POOL] = cell + CELL
        pool[cell + OF_NODE] = IS_CELL
        pool[cell + FORWARD] = -1
        pool[cell + NEXT] = -1
        pool[cell + RECORD] = record
        at = holder + LISTS + 2 * members[(nodes[node + MEMBERS_AT] + k) * MEMBER + TARGET]
        if pool[at] < 0:
            pool[at] = cell
        else:
            pool[pool[at + 1] + NEXT] = cell
        pool[at + 1] = cell
        k += 1


@helper
def _fits(pool, nodes, top, q, level):
    """Whether a node at a level lies under an open element as machine node q asks."""
    node = q * NODE
    parent = nodes[node + PARENT]
    if parent < 0:
        return nodes[node + ANY_LEVEL] == 1 or level == 1
    e = _outer(pool, top[parent], level)
    return e >= 0 and (nodes[node + CHILD_EDGE] == 0 or pool[e + LEVEL] == level - 1)


@helper
def _new(m, pool, nodes, q, level, order):
    record = m[POOL]
    pool[record + OF_NODE] = q
    pool[record + FORWARD] = -1
    pool[record + NEXT] = -1
    pool[record + LEVEL] = level
    pool[record + ORDER] = order
    pool[record + TEXT_START] = -1
    pool[record + TEXT_END] = -1
    pool[record + XML_START] = -1
    pool[record + XML_END] = -1
    size = LISTS + 2 * nodes[q * NODE + LISTS_OF]
    for i in range(record + LISTS, record + size):
        pool[i] = -1
    m[POOL] = record + size
    return record


@helper
def _point(pool, queries, first, k, cursor, most):
    """Set the cursor of query node k of a twig to the first cell of its list in its parent's record."""
    query = (first + k) * QUERY_FIELDS
    parent = queries[query + QUERY_PARENT]
    holder = cursor[parent]
    if holder >= 0 and parent > 0:
        holder = pool[holder + RECORD]
    cursor[k] = -1
    cursor[most + k] = -1
    if holder >= 0:
        at = holder + LISTS + 2 * queries[query + QUERY_LIST]
        cursor[k] = pool[at]
        if pool[at] >= 0:
            cursor[most + k] = pool[at + 1]


@helper
def _emit(m, queries, twigs, columns, pool, texts, values, xmls, cursor, most, rows, row_at, out):
    """Write the fragments of the root record m[EMITTING] as rows; returns DONE, or what is full.

    The cursor has the root record, then for each query node its cell; the last cell of its list; and of each column the record
    that it showed last with the place where that text lies in `out`: fragments that share a record share its text.
    """
    twig = m[EMITTED_TWIG]
    first = twigs[twig * TWIG_FIELDS + FIRST]
    count = twigs[twig * TWIG_FIELDS + NODES_OF]
    at_column = twigs[twig * TWIG_FIELDS + COLUMNS_AT]
    shown = twigs[twig * TWIG_FIELDS + COLUMNS_OF]
    width = twigs[twig * TWIG_FIELDS + WIDTH]
    cached = 2 * most
    if m[STARTED] == 0:
        m[STARTED] = 1
        cursor[0] = m[EMITTING]
        for k in range(1, count):
            _point(pool, queries, first, k, cursor, most)
        for c in range(shown):
            cursor[cached + 2 * c] = -1
    while True:
        if m[ROWS] >= row_at.size or m[WORDS] + width > rows.size:
            return ROWS_FULL
        w = m[WORDS]
        row_at[m[ROWS]] = w
        rows[w] = twig
        w += 1
        for c in range(shown):
            k = columns[2 * (at_column + c)]
            kind = columns[2 * (at_column + c) + 1]
            r = cursor[k]
            if r >= 0 and k > 0:
                r = pool[r + RECORD]
            if kind == AS_ORDER:
                rows[w] = pool[r + ORDER] if r >= 0 else -1
                w += 1
                continue
            if r < 0:
                rows[w] = 0
                rows[w + 1] = -1
                w += 2
                continue
            in_values = pool[r + XML_START] == IN_VALUES
            as_xml = kind == AS_XML and not in_values
            begin = pool[r + XML_START] if as_xml else pool[r + TEXT_START]
            length = (pool[r + XML_END] if as_xml else pool[r + TEXT_END]) - begin
            if cursor[cached + 2 * c] != r:
                if m[OUT] + length > out.size:
                    m[ASKED] = length
                    return OUT_FULL
                source = xmls if as_xml else values if in_values else texts
                copy_bytes(np.int64(out.ctypes.data) + m[OUT], np.int64(source.ctypes.data) + begin, length)
                cursor[cached + 2 * c] = r
                cursor[cached + 2 * c + 1] = m[OUT]
                m[OUT] += length
            rows[w] = cursor[cached + 2 * c + 1]
            rows[w + 1] = length
            w += 2
        m[WORDS] = w
        m[ROWS] += 1
        m[MADE] += 1
        k = count - 1
        while k > 0 and cursor[k] == cursor[most + k]:
            k -= 1
        if k == 0:
            m[STARTED] = 0
            m[EMITTING] = -1
            return DONE
        cursor[k] = pool[cursor[k] + NEXT]
        for j in range(k + 1, count):
            _point(pool, queries, first, j, cursor, most)


@helper
def _catch_up(m, data, base, xmls, position):
    """Copy the document's bytes up to a position behind those that were copied before."""
    length = position - m[XML_POSITION]
    copy_bytes(
        np.int64(xmls.ctypes.data) + m[XMLS], np.int64(data.ctypes.data) + m[XML_POSITION] - base, length
    )  # fmt: skip
    m[XMLS] += length
    m[XML_POSITION] = position


@helper
def _release(m):
    """Nothing is open, so that no record can be reached any more."""
    m[POOL] = 0
    m[TEXTS] = 0
    m[VALUES] = 0
    m[XMLS] = 0


@kernel(
    int64(
        I64, int64, U8, int64, int64, i64, I64, I64, I64, I64, I64, I64, I64, I64, I64, I64, I64, I64, I64, U8,
        I64, I64, i64, i64, u8, u8, u8, i64, i64, i64, i64, u8,
    )
)  # fmt: skip
def match(
    events, stop, data, base, reached, m, nodes, slots, members, required, queries, element_at, element_nodes, start_needs,
    end_needs, attribute_at, attribute_nodes, attribute_needs, literals, digits, twigs, columns, top, pool, texts, values, xmls,
    pending, cursor, rows, row_at, out,
):  # fmt: skip
    """Run events[:stop] through the machine; returns DONE, or what is full.

    `data` are the bytes that the events point into, from position `base` of the document, of which the events cover those before
    `reached`. Elements of name k are matched by the machine nodes element_nodes[element_at[k]:element_at[k + 1]], parents before
    children, and take start_needs[k] and end_needs[k] words of the pool; names that no twig knows have the last k. Attributes
    likewise. m[PENDING_NEEDS] words are what all attributes of an element that stand for children may take at its end.
    """
    spelt = np.int64(digits.ctypes.data)
    text = np.int64(data.ctypes.data)
    most = cursor.size // 4
    known = element_at.size - 2
    while True:
        if m[EMITTING] >= 0:
            full = _emit(m, queries, twigs, columns, pool, texts, values, xmls, cursor, most, rows, row_at, out)
            if full != DONE:
                return full
        if m[ROOT] >= 0:
            # One twig after the other for which the record of a root is a solution.
            node = pool[m[ROOT] + OF_NODE] * NODE
            k = _next_member(pool, m[ROOT], nodes, members, required, literals, spelt, texts, values, m[AT_MEMBER])
            if k < nodes[node + MEMBERS_OF]:
                m[AT_MEMBER] = k + 1
                m[EMITTING] = m[ROOT]
                m[EMITTED_TWIG] = members[(nodes[node + MEMBERS_AT] + k) * MEMBER + TARGET]
                continue
            m[ROOT] = -1
        at = m[AT_EVENT]
        if at >= stop:
            break
        word = events[at]
        kind = word & 0xFF
        if kind == TEXT or kind == CHARACTER:
            length = events[at + 2] if kind == TEXT else 4
            if m[IN_ATTRIBUTE] == 1:
                if m[VALUES] + length > values.size:
                    m[ASKED] = length
                    return VALUES_FULL
                if kind == TEXT:
                    copy_bytes(np.int64(values.ctypes.data) + m[VALUES], text + events[at + 1], length)
                    m[VALUES] += length
                else:
                    m[VALUES] = _put(values, m[VALUES], events[at + 1])
            elif m[OPEN_TEXTS] > 0:
                if m[TEXTS] + length > texts.size:
                    m[ASKED] = length
                    return TEXTS_FULL
                if kind == TEXT:
                    copy_bytes(np.int64(texts.ctypes.data) + m[TEXTS], text + events[at + 1], length)
                    m[TEXTS] += length
                else:
                    m[TEXTS] = _put(texts, m[TEXTS], events[at + 1])
            m[AT_EVENT] = at + EVENT
            continue
        if m[OPEN_XMLS] > 0 and kind <= END:
            length = events[at + 1] - m[XML_POSITION]
            if m[XMLS] + length > xmls.size:
                m[ASKED] = length
                return XMLS_FULL
            _catch_up(m, data, base, xmls, events[at + 1])
        level = (word >> 8) & 0xFFFFFF
        name = min(word >> 32, known)
        if kind == START:
            if m[POOL] + start_needs[name] > pool.size:
                m[ASKED] = start_needs[name]
                return POOL_FULL
            for j in range(element_at[name], element_at[name + 1]):
                q = element_nodes[j]
                node = q * NODE
                if nodes[node + FALLS_BACK] == 1:
                    # A child element takes the place of the attribute that stood for it.
                    i = m[PENDING] - WAITING
                    while i >= 0 and pending[i] == level - 1:
                        if pending[i + 1] == q:
                            pending[i + 2] = -1
                        i -= WAITING
                if not _fits(pool, nodes, top, q, level):
                    continue
                record = _new(m, pool, nodes, q, level, events[at + 2])
                pool[record + NEXT] = top[q]
                top[q] = record
                m[OPEN] += 1
                if nodes[node + NEEDS_TEXT] == 1:
                    pool[record + TEXT_START] = m[TEXTS]
                    m[OPEN_TEXTS] += 1
                if nodes[node + NEEDS_XML] == 1:
                    if m[OPEN_XMLS] == 0:
                        m[XML_POSITION] = events[at + 1]
                    m[OPEN_XMLS] += 1
                    pool[record + XML_START] = m[XMLS]
        elif kind == END:
            length = end_needs[name]
            if m[PENDING] > 0:
                length += m[PENDING_NEEDS]
            if m[POOL] + length > pool.size:
                m[ASKED] = length
                return POOL_FULL
            while m[PENDING] > 0 and pending[m[PENDING] - WAITING] == level:
                m[PENDING] -= WAITING
                record = pending[m[PENDING] + 2]
                if record >= 0:
                    _settle(m, pool, nodes, members, required, literals, spelt, texts, values, top, record, level + 1)
            j = element_at[name + 1] - 1 - m[AT_NODE]
            while j >= element_at[name] and m[ROOT] < 0:
                q = element_nodes[j]
                j -= 1
                record = top[q]
                if record < 0 or pool[record + LEVEL] != level:
                    continue
                node = q * NODE
                outer = pool[record + NEXT]
                top[q] = outer
                pool[record + NEXT] = -1
                m[OPEN] -= 1
                if nodes[node + NEEDS_TEXT] == 1:
                    pool[record + TEXT_END] = m[TEXTS]
                    m[OPEN_TEXTS] -= 1
                if nodes[node + NEEDS_XML] == 1:
                    pool[record + XML_END] = m[XMLS]
                    m[OPEN_XMLS] -= 1
                if outer >= 0:
                    for s in range(nodes[node + LISTS_OF]):
                        mine = record + LISTS + 2 * s
                        if pool[mine] >= 0 and slots[nodes[node + SLOTS_AT] + s] == 1:
                            theirs = outer + LISTS + 2 * s
                            if pool[theirs] < 0:
                                pool[theirs] = pool[mine]
                            else:
                                pool[pool[theirs + 1] + NEXT] = pool[mine]
                            pool[theirs + 1] = pool[mine + 1]
                if nodes[node + EMITS] == 1:
                    m[ROOT] = record
                    m[AT_MEMBER] = 0
                elif not _settle(m, pool, nodes, members, required, literals, spelt, texts, values, top, record, level):
                    if record + LISTS + 2 * nodes[node + LISTS_OF] == m[POOL]:
                        m[POOL] = record  # nothing was made after it, and nothing leads to it
            if m[ROOT] >= 0:
                m[AT_NODE] = element_at[name + 1] - 1 - j
                continue
            m[AT_NODE] = 0
            if m[OPEN] == 0:
                _release(m)
        elif kind == ATTRIBUTE:
            m[IN_ATTRIBUTE] = 1
            m[VALUE_START] = m[VALUES]
            m[ATTRIBUTE_WORD] = word
            m[ATTRIBUTE_ORDER] = events[at + 2]
        else:
            level = (m[ATTRIBUTE_WORD] >> 8) & 0xFFFFFF
            name = min(m[ATTRIBUTE_WORD] >> 32, known)
            if m[POOL] + attribute_needs[name] > pool.size:
                m[ASKED] = attribute_needs[name]
                return POOL_FULL
            length = WAITING * (attribute_at[name + 1] - attribute_at[name])
            if m[PENDING] + length > pending.size:
                m[ASKED] = length
                return PENDING_FULL
            used = m[AT_NODE] > 0
            j = attribute_at[name] + m[AT_NODE]
            while j < attribute_at[name + 1] and m[ROOT] < 0:
                q = attribute_nodes[j]
                j += 1
                if not _fits(pool, nodes, top, q, level):
                    continue
                record = _new(m, pool, nodes, q, level, m[ATTRIBUTE_ORDER])
                pool[record + TEXT_START] = m[VALUE_START]
                pool[record + TEXT_END] = m[VALUES]
                pool[record + XML_START] = IN_VALUES
                if nodes[q * NODE + EMITS] == 1:
                    m[ROOT] = record
                    m[AT_MEMBER] = 0
                elif nodes[q * NODE + FALLS_BACK] == 1:
                    pending[m[PENDING]] = level - 1
                    pending[m[PENDING] + 1] = q
                    pending[m[PENDING] + 2] = record
                    m[PENDING] += WAITING
                elif not _settle(m, pool, nodes, members, required, literals, spelt, texts, values, top, record, level):
                    m[POOL] = record
                    continue
                used = True
            if m[ROOT] >= 0:
                m[AT_NODE] = j - attribute_at[name]
                continue
            m[AT_NODE] = 0
            m[IN_ATTRIBUTE] = 0
            if m[OPEN] == 0:
                _release(m)
            elif not used:
                m[VALUES] = m[VALUE_START]
        m[AT_EVENT] = at + EVENT
    if m[OPEN_XMLS] > 0:
        length = reached - m[XML_POSITION]
        if m[XMLS] + length > xmls.size:
            m[ASKED] = length
            return XMLS_FULL
        _catch_up(m, data, base, xmls, reached)
    m[AT_EVENT] = 0
    return DONE


@helper
def _mark(pool, nodes, record, work):
    """Mark a record and all that its lists lead to; `work` is a stack of parts of lists that are still to be followed."""
    if pool[record + FORWARD] >= 0:
        return
    pool[record + FORWARD] = 0
    n = 0
    r = record
    while True:
        if r >= 0:
            for s in range(nodes[pool[r + OF_NODE] * NODE + LISTS_OF]):
                if pool[r + LISTS + 2 * s] >= 0:
                    work[n] = pool[r + LISTS + 2 * s]
                    work[n + 1] = pool[r + LISTS + 2 * s + 1]
                    n += 2
        if n == 0:
            return
        n -= 2
        cell = work[n]
        if cell != work[n + 1]:
            work[n] = pool[cell + NEXT]
            n += 2
        pool[cell + FORWARD] = 0
        r = pool[cell + RECORD]
        if pool[r + FORWARD] >= 0:
            r = np.int64(-1)
        else:
            pool[r + FORWARD] = 0


@helper
def _size(pool, nodes, r):
    return CELL if pool[r + OF_NODE] == IS_CELL else LISTS + 2 * nodes[pool[r + OF_NODE] * NODE + LISTS_OF]


@helper
def _slide(arena, begin, end, done):
    """Move a text to the front of its arena, behind those before it; done is (end of what was seen, of what is kept, shift).

    Texts come in the order of their beginnings and may lie inside each other. Returns where the text begins now.
    """
    if begin >= done[0]:
        done[2] = begin - done[1]
        done[0] = begin
    for i in range(done[0], end):
        arena[done[1]] = arena[i]
        done[1] += 1
    done[0] = max(done[0], end)
    return begin - done[2]


@kernel(void(i64, I64, i64, i64, u8, u8, u8, i64, i64))
def collect(m, nodes, top, pool, texts, values, xmls, pending, work):
    """Throw away records that nothing leads to any more, and their texts: the others move together, in their order.

    Not while fragments are being written. `work` has two words for each list and two for each machine node, and nine.
    """
    for q in range(top.size):
        r = top[q]
        while r >= 0:
            _mark(pool, nodes, r, work)
            r = pool[r + NEXT]
    for i in range(0, m[PENDING], WAITING):
        if pending[i + 2] >= 0:
            _mark(pool, nodes, pending[i + 2], work)
    slid = work[work.size - 9 :]
    slid[:] = 0
    r = 0
    used = 0
    while r < m[POOL]:
        size = _size(pool, nodes, r)
        if pool[r + FORWARD] >= 0:
            pool[r + FORWARD] = used
            used += size
        if pool[r + FORWARD] >= 0 and pool[r + OF_NODE] != IS_CELL:
            begin, end = pool[r + TEXT_START], pool[r + TEXT_END]
            if begin >= 0:
                if pool[r + XML_START] == IN_VALUES:
                    begin = _slide(values, begin, end, slid[0:3])
                    pool[r + TEXT_END] = begin + end - pool[r + TEXT_START]
                else:
                    begin = _slide(texts, begin, end if end >= 0 else m[TEXTS], slid[3:6])
                    if end >= 0:
                        pool[r + TEXT_END] = begin + end - pool[r + TEXT_START]
                pool[r + TEXT_START] = begin
            begin, end = pool[r + XML_START], pool[r + XML_END]
            if begin >= 0:
                begin = _slide(xmls, begin, end if end >= 0 else m[XMLS], slid[6:9])
                if end >= 0:
                    pool[r + XML_END] = begin + end - pool[r + XML_START]
                pool[r + XML_START] = begin
        r += size
    if m[IN_ATTRIBUTE] == 1:
        m[VALUE_START] = _slide(values, m[VALUE_START], m[VALUES], slid[0:3])
    m[VALUES] = slid[1]
    m[TEXTS] = slid[4]
    m[XMLS] = slid[7]
    for q in range(top.size):
        if top[q] >= 0:
            top[q] = pool[top[q] + FORWARD]
    for i in range(0, m[PENDING], WAITING):
        if pending[i + 2] >= 0:
            pending[i + 2] = pool[pending[i + 2] + FORWARD]
    r = 0
    while r < m[POOL]:
        size = _size(pool, nodes, r)
        if pool[r + FORWARD] >= 0:
            # A cell that follows the last of a list may be gone: its mark is -1, as is the end of a chain.
            if pool[r + NEXT] >= 0:
                pool[r + NEXT] = pool[pool[r + NEXT] + FORWARD]
            for i in range(r + (RECORD if size == CELL else LISTS), r + size):
                if pool[i] >= 0:
                    pool[i] = pool[pool[i] + FORWARD]
        r += size
    r = 0
    while r < m[POOL]:
        size = _size(pool, nodes, r)
        target = pool[r + FORWARD]
        if target >= 0:
            pool[r + FORWARD] = -1
            for i in range(size):
                pool[target + i] = pool[r + i]
        r += size
    m[POOL] = used


@kernel(int64(I64, I64, int64, i32))
def column_offsets(rows, picked, word, offsets):
    """Offsets of a column of texts: word `word` of a picked row is a start, the next a length or -1; returns how many are -1."""
    missing = 0
    for i in range(picked.size):
        length = rows[picked[i] + word + 1]
        if length < 0:
            missing += 1
            length = 0
        offsets[i + 1] = offsets[i] + length
    return missing


@kernel(void(I64, I64, int64, U8, I32, u8))
def column_texts(rows, picked, word, source, offsets, target):
    """Copy the texts of a column to their offsets."""
    for i in range(picked.size):
        copy_bytes(
            np.int64(target.ctypes.data) + offsets[i],
            np.int64(source.ctypes.data) + rows[picked[i] + word],
            np.int64(offsets[i + 1] - offsets[i]),
        )
