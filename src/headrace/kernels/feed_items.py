"""Items of a feed, from the events of its document: texts, dates and places, each in the slot of its item.

One pass over the events of headrace.kernels.xml_scan, whose texts are positions in `data`. A name is (prefix, local name), which
the caller numbers; what an element means is `actions[namespace * locals + local]`, an action with its slot and rank, and the
namespace of a prefix changes with every xmlns attribute. Row 0 is the feed itself, row i + 1 item i. Of several elements for the
same slot the one with the lowest rank stays, of those the first.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.feed_dates import MISSING, date_at
from headrace.kernels.feed_geometry import HALF_LAT, HALF_LONG, LAT, LONG, WORDS, XMAX, XMIN, YMAX, YMIN, add_geometry
from headrace.kernels.feed_html import REFUSED, RELATIVE, link_kind, lower, make_harmless
from headrace.kernels.feed_text import (
    AS_IS,
    IN_CONTENT,
    SPARE,
    has_children,
    put_bytes,
    put_character,
    put_end_tag,
    put_start_tag,
    put_value,
    skip_value,
    trim,
    whole,
    word_hash,
)
from headrace.kernels.jit import I32, I64, U8, U64, f64, helper, i32, i64, int64, kernel, u8
from headrace.kernels.xml_scan import ATTRIBUTE, CHARACTER, EVENT, START, TEXT

# Actions of elements.
(NOTHING, A_ROOT, A_CHANNEL, A_ITEM, A_TEXT, A_LINK, A_GUID, A_DATE, A_AUTHOR, A_PERSON, A_CATEGORY, A_PLACE, A_SOURCE,
 A_CONTENT) = range(14)  # fmt: skip
# Slots of a row, of three words: where a text begins, its length, and its rank, -1 if there is none. A date is its first word,
# and so is the number of authors or categories.
GUID, LINK, TITLE, DESCRIPTION, BASE, TTL, PERIOD, FREQUENCY, AUTHOR, PUBLISHED, UPDATED, PERMANENT, CATEGORIES = range(
    13
)
SLOTS, SLOT = 13, 3
# Attributes that are read.
(NO_ATTRIBUTE, HREF, REL, TYPE, TERM, IS_PERMALINK, MODE, VERSION, SRS_NAME, SRS_DIMENSION, XML_BASE, ABOUT, UOM) = (
    range(13)
)
ATTRIBUTES = 13
# Words of attributes, by their place in `sayings`.
(S_CRS84, S_KILOMETRES, S_ALTERNATE, S_HTML, S_XHTML_TYPE, S_FALSE, S_XHTML, S_TEXT, S_TEXT_TYPE, S_XML, S_BASE64) = (
    range(11)
)
# Words of an entry of a list: row, AUTHOR or CATEGORIES, rank, where its text begins, its length.
ENTRY = 5
# What a pass has found.
(ROWS, TEXTS, ENTRIES, ROOT, ROOT_ACTION, ROOT_NAMESPACE, VERSION_AT, VERSION_LENGTH, MORE_ITEMS, CUT, CUT_ROW, LONG_LINKS,
 BAD_DATES, BAD_DATE_AT, BAD_DATE_LENGTH, BAD_PLACES, BAD_PLACE_ROW, REFUSED_PARTS, REFUSED_ROW, MORE_ENTRIES, ENCODED,
 RELATIVE_LINKS, HALF_ITEM) = range(23)  # fmt: skip
FOUND = 23
# Limits, in the order of the array.
L_ITEMS, L_SHORT, L_LONG, L_ENTRIES = 0, 1, 2, 3
# What a pass returns.
DONE, FULL = 0, 1
# What the element of a level is.
_OTHER, _CHANNEL, _ITEM, _AUTHOR = 0, 1, 2, 3
_GROWTH = 7  # bytes that make_harmless may write for one
_LONGEST_DATE = 256  # bytes of the text of a date
_ENDLESS = np.int64(1 << 62)
_HTTP = np.frombuffer(b"http", np.uint8)


@helper
def _namespace(texts, start, end, uris):
    """The number of the namespace with this URI, as people write it: with or without www, a last slash or a last '#'."""
    start, end = trim(texts, start, end)
    while end > start and (texts[end - 1] == 35 or texts[end - 1] == 47):
        end -= 1
    for k in range(start, min(end - 2, start + 8)):
        if texts[k] == 58 and texts[k + 1] == 47 and texts[k + 2] == 47:
            start = k + 3
            break
    if end - start > 4 and lower(texts[start]) == 119 and texts[start + 3] == 46:
        start += 4
    h = word_hash(texts, start, end)
    for k in range(uris.size // 2):
        if uris[2 * k] == h:
            return np.int64(uris[2 * k + 1])
    return np.int64(-1)


@helper
def _read_attributes(
    words, i, n, data, declares, locals_, attribute_of, uris, bindings, levels, level, undone, texts, t, spans
):  # fmt: skip
    """Read the attributes from event i on: their values into texts, where they lie into spans, namespaces into bindings.

    Returns the next event, where the texts end (-1: no room), and where the bindings to undo begin.
    """
    spans[:] = -1
    while i < n and words[i] & 0xFF == ATTRIBUTE:
        attribute = words[i] >> 32
        declared = declares[attribute]
        which = np.int64(attribute_of[locals_[attribute]])
        start = t
        i += EVENT
        if declared < 0 and which == NO_ATTRIBUTE:
            i = skip_value(words, i, n)
            continue
        i, t = put_value(words, i, n, data, texts, t, AS_IS)
        if t < 0:
            return i, t, undone
        if declared < 0:
            spans[2 * which], spans[2 * which + 1] = trim(texts, start, t)
            continue
        if level + 2 >= undone - 3:
            return i, np.int64(-1), undone
        undone -= 3
        levels[undone] = level
        levels[undone + 1] = declared
        levels[undone + 2] = bindings[declared]
        namespace = _namespace(texts, start, t, uris)
        # A default namespace that nobody knows is taken for that of the format, as readers do.
        bindings[declared] = 0 if namespace < 0 and declared == 0 else namespace
        t = start
    return i, t, undone


@helper
def _has(spans, which):
    """Whether an attribute is there, and not empty."""
    return spans[2 * which] >= 0 and spans[2 * which + 1] > spans[2 * which]


@helper
def _says(texts, spans, which, sayings, saying):
    return spans[2 * which] >= 0 and word_hash(texts, spans[2 * which], spans[2 * which + 1]) == sayings[saying]


@helper
def _content_type(texts, spans, sayings):
    """What an Atom text is: whether it is text at all, whether XHTML, and whether plain."""
    if _says(texts, spans, MODE, sayings, S_BASE64):
        return False, False, False
    if not _has(spans, TYPE):
        return True, False, False
    if _says(texts, spans, TYPE, sayings, S_XHTML) or _says(texts, spans, TYPE, sayings, S_XHTML_TYPE):
        return True, True, False
    if _says(texts, spans, TYPE, sayings, S_TEXT) or _says(texts, spans, TYPE, sayings, S_TEXT_TYPE):
        return True, False, True
    start, end = spans[2 * TYPE], spans[2 * TYPE + 1]
    slash = start
    while slash < end and texts[slash] != 47:
        slash += 1
    usable = slash == end or word_hash(texts, start, slash) == sayings[S_TEXT]
    if not usable:
        usable = end - start > 3 and word_hash(texts, end - 3, end) == sayings[S_XML]
    return usable, False, False


@helper
def _take(slots, at, start, end, rank):
    """Give a text to a slot, unless one of the same or a lower rank is there."""
    if end <= start or (slots[at + 2] >= 0 and slots[at + 2] <= rank):
        return False
    slots[at] = start
    slots[at + 1] = end - start
    slots[at + 2] = rank
    return True


@helper
def _take_link(slots, at, texts, start, end, rank, row, schemes, found):
    """Give a link to its slot, unless it can do harm; whether it was taken."""
    kind = link_kind(texts, start, end, False, schemes)
    if kind == REFUSED:
        _note(found, REFUSED_PARTS, REFUSED_ROW, row)
        return False
    taken = _take(slots, at + LINK * SLOT, start, end, rank)
    if taken and kind == RELATIVE:
        found[RELATIVE_LINKS] += 1
    return taken


@helper
def _add_entry(entries, count, slots, row, list_, rank, start, end, limits, found):
    """Add a text to a list of a row; how many entries there are then. The caller has seen that there is room."""
    at = (row * SLOTS + list_) * SLOT
    if slots[at] >= limits[L_ENTRIES]:
        found[MORE_ENTRIES] += 1
        return count
    slots[at] = max(slots[at], 0) + 1
    e = count * ENTRY
    entries[e], entries[e + 1], entries[e + 2], entries[e + 3], entries[e + 4] = row, list_, rank, start, end - start
    return count + 1


@helper
def _note(found, count, first, row):
    """Count a thing, and note the row of the first."""
    if found[count] == 0:
        found[first] = row
    found[count] += 1


@helper
def _new_row(slots, places, row):
    slots[row * SLOTS * SLOT : (row + 1) * SLOTS * SLOT] = -1
    places[row * WORDS : (row + 1) * WORDS] = np.nan


@helper
def _close_item(slots, places, row, texts, found):
    """Finish an item: a guid that is a link serves as one, a place without a point has its middle, half a point is told."""
    at = row * SLOTS * SLOT
    link, guid = at + LINK * SLOT, at + GUID * SLOT
    if (
        slots[link + 2] < 0
        and slots[guid + 2] >= 0
        and slots[at + PERMANENT * SLOT] == 1
        and slots[guid + 1] > _HTTP.size
    ):
        same = True
        for k in range(_HTTP.size):
            same = same and lower(texts[slots[guid] + k]) == _HTTP[k]
        if same:
            slots[link : link + SLOT] = slots[guid : guid + SLOT]
    place = places[row * WORDS : (row + 1) * WORDS]
    if np.isnan(place[LAT]) and not np.isnan(place[XMIN]):
        place[LAT] = (place[YMIN] + place[YMAX]) / 2
        place[LONG] = (place[XMIN] + place[XMAX]) / 2
    if not np.isnan(place[HALF_LAT]) or not np.isnan(place[HALF_LONG]):
        _note(found, BAD_PLACES, BAD_PLACE_ROW, row)


@kernel(
    int64(
        I64, U8, I32, I32, I32, i32, U64, I32, int64, U8, I64, U64, U8, U64, U8, U64, U64, i32, u8, i64, f64, i64, i64
    )
)
def collect(
    words, data, prefixes, locals_, declares, bindings, uris, actions, n_locals, attribute_of, limits,
    tags, tag_kinds, attributes, attribute_kinds, schemes, sayings, levels, texts, slots, places, entries, found
):  # fmt: skip
    """Fill slots, places and entries from all events of a document; FULL if one of them has no room: call again with more.

    prefixes, locals_ and declares are by name: its prefix, its local name, and the prefix that it declares as an xmlns attribute
    (-1: none). bindings is the namespace of each prefix before the document. levels is room for what the element of each level
    is, and from its end on for bindings to undo, three numbers each. sayings are hashes of words: see headrace.feeds.vocabulary.
    """
    n = words.size
    found[:] = 0
    found[ROOT] = -1
    _new_row(slots, places, 0)
    i = t = row = n_entries = depth = np.int64(0)
    rows = np.int64(1)
    undone = levels.size
    spans = np.empty(2 * ATTRIBUTES, np.int64)
    # Levels of elements that are open: an item, the source of an item, one whose text is captured, one with a reference system.
    item_level = source_level = capture = srs_level = np.int64(0)
    skipping = swapped = False
    dimension = np.int64(0)
    unit = 1.0
    # What is captured: its action, slot and rank, where it begins, how long it may be, whether it has tags in it.
    action = slot = rank = begin = most = np.int64(0)
    cut = tagged = xhtml = plain = False
    author_at = author_end = author_group = np.int64(0)
    author_rank = np.int64(-1)
    while i < n:
        word = words[i]
        kind = word & 0xFF
        if kind == TEXT or kind == CHARACTER:
            if capture > 0 and not cut:
                room = most - (t - begin)
                length = words[i + 2] if kind == TEXT else np.int64(4)
                if length > room:
                    cut = True
                    length = max(room, 0) if kind == TEXT else np.int64(0)
                if t + 6 * length + SPARE > texts.size:
                    return FULL
                escaped = IN_CONTENT if tagged else AS_IS
                if kind == TEXT:
                    t = put_bytes(texts, t, data, words[i + 1], length, escaped)
                elif length > 0:
                    t = put_character(texts, t, words[i + 1], escaped)
            i += EVENT
            continue
        level = (word >> 8) & 0xFFFFFF
        name = word >> 32
        if kind == START:
            depth = level
            if level + 2 >= undone - 3:
                return FULL
            levels[level] = _OTHER
            if capture > 0:
                first = t
                # The outer <div> of an Atom text of type xhtml is no part of it.
                visible = tagged and not cut and not (xhtml and level == capture + 1)
                i, t = put_start_tag(words, i, n, data, declares, visible, texts, t)
                if t < 0:
                    return FULL
                if t - begin > most:
                    cut = True
                    t = first
                continue
            # Attributes come first: they may say what the prefix of the element's own name means.
            mark = t
            i, t, undone = _read_attributes(
                words,
                i + EVENT,
                n,
                data,
                declares,
                locals_,
                attribute_of,
                uris,
                bindings,
                levels,
                level,
                undone,
                texts,
                t,
                spans,
            )
            if t < 0:
                return FULL
            namespace = np.int64(bindings[prefixes[name]])
            packed = np.int64(actions[namespace * n_locals + locals_[name]]) if namespace >= 0 else np.int64(0)
            what = packed & 0xFF
            slot = (packed >> 8) & 0xFF
            rank = (packed >> 16) & 0xFF
            if level == 1:
                found[ROOT] = name
                found[ROOT_ACTION] = what
                # The root of RSS 1.0 is RDF: the format has the default namespace.
                found[ROOT_NAMESPACE] = bindings[0] if what == A_ROOT else namespace
                if _has(spans, VERSION):
                    found[VERSION_AT] = spans[2 * VERSION]
                    found[VERSION_LENGTH] = spans[2 * VERSION + 1] - spans[2 * VERSION]
                _take(slots, BASE * SLOT, spans[2 * XML_BASE], spans[2 * XML_BASE + 1], 1)
                mark = t
            if skipping or source_level > 0:
                t = mark
                continue
            parent = levels[level - 1] if level > 1 else _OTHER
            direct = parent == _ITEM or (parent == _CHANNEL and item_level == 0)
            at = row * SLOTS * SLOT
            if item_level > 0 and (_has(spans, SRS_NAME) or _has(spans, SRS_DIMENSION)):
                srs_level = level
                if _has(spans, SRS_NAME):
                    end = spans[2 * SRS_NAME + 1]
                    swapped = end - spans[2 * SRS_NAME] >= 5 and word_hash(texts, end - 5, end) == sayings[S_CRS84]
                if _has(spans, SRS_DIMENSION):
                    dimension = np.int64(texts[spans[2 * SRS_DIMENSION]]) - 48
            most = limits[L_SHORT]
            if what == A_ITEM and item_level == 0:
                item_level = level
                if rows - 1 >= limits[L_ITEMS]:
                    found[MORE_ITEMS] += 1
                    skipping = True
                    t = mark
                    continue
                if (rows + 1) * SLOTS * SLOT > slots.size:
                    return FULL
                row = rows
                rows += 1
                levels[level] = _ITEM
                _new_row(slots, places, row)
                at = row * SLOTS * SLOT
                if _take(slots, at + GUID * SLOT, spans[2 * ABOUT], spans[2 * ABOUT + 1], 1):
                    slots[at + PERMANENT * SLOT] = 1
                _take(slots, at + BASE * SLOT, spans[2 * XML_BASE], spans[2 * XML_BASE + 1], 0)
                mark = t
            elif what == A_CHANNEL and item_level == 0:
                levels[level] = _CHANNEL
                _take(slots, BASE * SLOT, spans[2 * XML_BASE], spans[2 * XML_BASE + 1], 0)
                mark = t
            elif what == A_SOURCE and parent == _ITEM:
                source_level = level
            elif what == A_PLACE and item_level > 0:
                capture = level
                most = _ENDLESS
                unit = 1000.0 if _says(texts, spans, UOM, sayings, S_KILOMETRES) else 1.0
            elif what == A_PERSON and parent == _AUTHOR:
                capture = level
            elif not direct:
                pass
            elif what == A_LINK and _has(spans, HREF):
                if not _has(spans, REL) or _says(texts, spans, REL, sayings, S_ALTERNATE):
                    page = not _has(spans, TYPE) or _says(texts, spans, TYPE, sayings, S_HTML)
                    if not page:
                        page = _says(texts, spans, TYPE, sayings, S_XHTML_TYPE)
                    if spans[2 * HREF + 1] - spans[2 * HREF] > limits[L_SHORT]:
                        found[LONG_LINKS] += 1
                    elif _take_link(
                        slots, at, texts, spans[2 * HREF], spans[2 * HREF + 1], 0 if page else 1, row, schemes, found
                    ):
                        mark = t
            elif what == A_LINK:
                capture = level
            elif what == A_GUID:
                capture = level
                slots[at + PERMANENT * SLOT] = 0 if _says(texts, spans, IS_PERMALINK, sayings, S_FALSE) else 1
            elif what == A_DATE:
                capture = level
                most = np.int64(_LONGEST_DATE)
            elif what == A_AUTHOR:
                author_rank = np.int64(-1)
                author_group = rank
                levels[level] = _AUTHOR
                if not has_children(words, i, n):
                    capture = level
            elif what == A_CATEGORY and _has(spans, TERM):
                start, end = spans[2 * TERM], spans[2 * TERM + 1]
                if end - start > limits[L_SHORT]:
                    end = whole(texts, start, start + limits[L_SHORT])
                    _note(found, CUT, CUT_ROW, row)
                if t + _GROWTH * (end - start) + SPARE > texts.size or (n_entries + 1) * ENTRY > entries.size:
                    return FULL
                stop, bad = make_harmless(
                    texts, start, end, t, True, tags, tag_kinds, attributes, attribute_kinds, schemes
                )
                if bad > 0:
                    _note(found, REFUSED_PARTS, REFUSED_ROW, row)
                start, t = trim(texts, t, stop)
                mark = t
                if t > start:
                    n_entries = _add_entry(entries, n_entries, slots, row, CATEGORIES, 0, start, t, limits, found)
            elif what == A_CATEGORY:
                capture = level
            elif what == A_TEXT or what == A_CONTENT:
                usable, xhtml, plain = _content_type(texts, spans, sayings)
                if usable:
                    capture = level
                else:
                    found[ENCODED] += 1
                plain = plain or slot != DESCRIPTION
                if slot == DESCRIPTION:
                    most = limits[L_LONG]
            t = mark
            if capture > 0:
                action, begin, cut = what, t, False
                tagged = (what == A_TEXT or what == A_CONTENT) and has_children(words, i, n)
                xhtml = xhtml and tagged
            continue
        # An element ends.
        i += EVENT
        depth = level - 1
        while undone < levels.size and levels[undone] >= level:
            bindings[levels[undone + 1]] = levels[undone + 2]
            undone += 3
        if capture > 0 and level > capture:
            if tagged and not cut and not (xhtml and level == capture + 1):
                if t + SPARE > texts.size:
                    return FULL
                t = put_end_tag(data, words[i - EVENT + 1], texts, t)
            continue
        if capture > 0:
            capture = np.int64(0)
            if cut:
                t = whole(texts, begin, t)
            start, end = trim(texts, begin, t)
            at = row * SLOTS * SLOT
            t = begin  # the arena ends there again, unless the text is kept
            if end <= start:
                pass
            elif action == A_PLACE:
                place = places[row * WORDS : (row + 1) * WORDS]
                if not add_geometry(texts, start, end, slot, swapped, dimension, unit, place):
                    _note(found, BAD_PLACES, BAD_PLACE_ROW, row)
            elif action == A_DATE:
                moment = date_at(texts, start, end)
                date = at + slot * SLOT
                if moment == MISSING:
                    if found[BAD_DATES] == 0:
                        found[BAD_DATE_AT] = start
                        found[BAD_DATE_LENGTH] = end - start
                        t = end
                    found[BAD_DATES] += 1
                elif slots[date + 2] < 0 or slots[date + 2] > rank:
                    slots[date] = moment
                    slots[date + 2] = rank
            elif (action == A_LINK or action == A_GUID) and cut:
                found[LONG_LINKS] += 1
            elif action == A_LINK:
                if _take_link(slots, at, texts, start, end, rank, row, schemes, found):
                    t = end
            elif action == A_GUID:
                if _take(slots, at + GUID * SLOT, start, end, rank):
                    t = end
            else:
                if cut:
                    _note(found, CUT, CUT_ROW, row)
                k = start
                while k < end and texts[k] != 60:
                    k += 1
                if k < end:
                    if end + _GROWTH * (end - start) + SPARE > texts.size:
                        return FULL
                    as_text = plain or (action != A_TEXT and action != A_CONTENT)
                    stop, bad = make_harmless(
                        texts, start, end, end, as_text, tags, tag_kinds, attributes, attribute_kinds, schemes
                    )
                    if bad > 0:
                        _note(found, REFUSED_PARTS, REFUSED_ROW, row)
                    first, stop = trim(texts, end, stop)
                    for k in range(stop - first):
                        texts[begin + k] = texts[first + k]
                    start, end = begin, begin + stop - first
                if end <= start:
                    pass
                elif action == A_PERSON:
                    if author_rank < 0 or rank < author_rank:
                        author_rank, author_at, author_end = rank, start, end
                        t = end
                elif action == A_AUTHOR or action == A_CATEGORY:
                    if (n_entries + 1) * ENTRY > entries.size:
                        return FULL
                    list_ = AUTHOR if action == A_AUTHOR else CATEGORIES
                    n_entries = _add_entry(entries, n_entries, slots, row, list_, rank, start, end, limits, found)
                    t = end
                elif _take(slots, at + slot * SLOT, start, end, rank):
                    t = end
        if srs_level >= level:
            srs_level, swapped, dimension = np.int64(0), False, np.int64(0)
        if item_level > 0 and level == item_level:
            if not skipping:
                _close_item(slots, places, row, texts, found)
            skipping = False
            item_level = row = np.int64(0)
        elif level == source_level:
            source_level = np.int64(0)
        elif levels[level] == _AUTHOR and author_rank >= 0:
            if (n_entries + 1) * ENTRY > entries.size:
                return FULL
            n_entries = _add_entry(
                entries, n_entries, slots, row, AUTHOR, author_group, author_at, author_end, limits, found
            )
            author_rank = np.int64(-1)
    if item_level > 0 and not skipping:
        # The document was cut. An item of which a part is missing would be another item, and is left out.
        empty = np.isnan(places[row * WORDS + XMIN])
        for k in range(SLOTS):
            empty = empty and slots[(row * SLOTS + k) * SLOT] < 0
        if depth > item_level or empty:
            rows -= 1
            found[HALF_ITEM] = 1
            while n_entries > 0 and entries[(n_entries - 1) * ENTRY] == row:
                n_entries -= 1
        else:
            _close_item(slots, places, row, texts, found)
    found[ROWS] = rows
    found[TEXTS] = t
    found[ENTRIES] = n_entries
    return DONE
