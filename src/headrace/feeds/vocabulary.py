"""The words of feeds: what elements of which namespaces mean, which attributes are read, which HTML is harmless."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from headrace.arrays import AnyArray, UInt8s, UInt64s
from headrace.kernels import feed_geometry as g
from headrace.kernels import feed_html as h
from headrace.kernels import feed_items as f

# Namespaces by number. That of the formats themselves is 0, whichever of their URIs they have: an element of RSS in an Atom feed
# means what it says.
PLAIN, DC, TERMS, CONTENT, GEO, GEORSS, GML, RDF, ITUNES, MEDIA, CAP, SYNDICATION, RSS10, RSS09, ATOM03, ATOM10 = range(
    16
)
_NAMESPACES = 16
_PLAINS = (PLAIN, RSS10, RSS09, ATOM03, ATOM10)
URIS: Final[Mapping[str, int]] = {
    "http://backend.userland.com/rss": PLAIN,
    "http://backend.userland.com/rss2": PLAIN,
    "http://backend.userland.com/RSS2": PLAIN,
    "http://blogs.law.harvard.edu/tech/rss": PLAIN,
    "http://cyber.law.harvard.edu/rss/rss.html": PLAIN,
    "http://purl.org/rss/1.0/": RSS10,
    "http://my.netscape.com/rdf/simple/0.9/": RSS09,
    "http://channel.netscape.com/rdf/simple/0.9/": RSS09,
    "http://purl.org/atom/ns#": ATOM03,
    "http://www.w3.org/2005/Atom": ATOM10,
    "http://purl.org/dc/elements/1.1/": DC,
    "http://purl.org/dc/elements/1.0/": DC,
    "http://purl.org/dc/terms/": TERMS,
    "http://purl.org/rss/1.0/modules/content/": CONTENT,
    "http://www.w3.org/2003/01/geo/wgs84_pos#": GEO,
    "http://www.w3.org/2003/01/geo/": GEO,
    "http://www.georss.org/georss": GEORSS,
    "http://www.georss.org/georss/10": GEORSS,
    "http://www.georss.org/georss/11": GEORSS,
    "http://www.opengis.net/gml": GML,
    "http://www.opengis.net/gml/3.2": GML,
    "http://www.opengis.net/gml/3.3/ce": GML,
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#": RDF,
    "http://www.itunes.com/dtds/podcast-1.0.dtd": ITUNES,
    "http://search.yahoo.com/mrss/": MEDIA,
    "urn:oasis:names:tc:emergency:cap:1.1": CAP,
    "urn:oasis:names:tc:emergency:cap:1.2": CAP,
    "http://purl.org/rss/1.0/modules/syndication/": SYNDICATION,
}
#: Prefixes that a feed may use without saying what they mean.
PREFIXES: Final[Mapping[str, int]] = {
    "": PLAIN,
    "rss": PLAIN,
    "atom": ATOM10,
    "a10": ATOM10,
    "dc": DC,
    "dcterms": TERMS,
    "content": CONTENT,
    "geo": GEO,
    "georss": GEORSS,
    "gml": GML,
    "rdf": RDF,
    "itunes": ITUNES,
    "media": MEDIA,
    "cap": CAP,
    "sy": SYNDICATION,
}

#: What an element means: action, slot (of a place: its shape), rank among those for the same slot.
_ELEMENTS: Final[Mapping[tuple[int, str], tuple[int, int, int]]] = {
    (PLAIN, "rss"): (f.A_ROOT, 0, 0),
    (RDF, "rdf"): (f.A_ROOT, 0, 0),
    (PLAIN, "rdf"): (f.A_ROOT, 0, 0),
    (PLAIN, "channel"): (f.A_CHANNEL, 0, 0),
    (PLAIN, "feed"): (f.A_CHANNEL, 0, 0),
    (PLAIN, "item"): (f.A_ITEM, 0, 0),
    (PLAIN, "entry"): (f.A_ITEM, 0, 0),
    (PLAIN, "source"): (f.A_SOURCE, 0, 0),
    (PLAIN, "title"): (f.A_TEXT, f.TITLE, 0),
    (DC, "title"): (f.A_TEXT, f.TITLE, 1),
    (MEDIA, "title"): (f.A_TEXT, f.TITLE, 2),
    (PLAIN, "description"): (f.A_TEXT, f.DESCRIPTION, 0),
    (PLAIN, "summary"): (f.A_TEXT, f.DESCRIPTION, 0),
    (PLAIN, "subtitle"): (f.A_TEXT, f.DESCRIPTION, 0),
    (PLAIN, "tagline"): (f.A_TEXT, f.DESCRIPTION, 0),
    (PLAIN, "abstract"): (f.A_TEXT, f.DESCRIPTION, 1),
    (DC, "description"): (f.A_TEXT, f.DESCRIPTION, 1),
    (PLAIN, "content"): (f.A_CONTENT, f.DESCRIPTION, 2),
    (CONTENT, "encoded"): (f.A_TEXT, f.DESCRIPTION, 2),
    (PLAIN, "fullitem"): (f.A_TEXT, f.DESCRIPTION, 3),
    (PLAIN, "body"): (f.A_TEXT, f.DESCRIPTION, 3),
    (ITUNES, "summary"): (f.A_TEXT, f.DESCRIPTION, 4),
    (MEDIA, "description"): (f.A_TEXT, f.DESCRIPTION, 5),
    (PLAIN, "link"): (f.A_LINK, f.LINK, 0),
    (PLAIN, "guid"): (f.A_GUID, f.GUID, 0),
    (PLAIN, "id"): (f.A_GUID, f.GUID, 0),
    (DC, "identifier"): (f.A_GUID, f.GUID, 2),
    (PLAIN, "pubdate"): (f.A_DATE, f.PUBLISHED, 0),
    (PLAIN, "published"): (f.A_DATE, f.PUBLISHED, 0),
    (PLAIN, "issued"): (f.A_DATE, f.PUBLISHED, 0),
    (TERMS, "issued"): (f.A_DATE, f.PUBLISHED, 1),
    (DC, "date"): (f.A_DATE, f.PUBLISHED, 2),
    (PLAIN, "created"): (f.A_DATE, f.PUBLISHED, 3),
    (TERMS, "created"): (f.A_DATE, f.PUBLISHED, 3),
    (PLAIN, "updated"): (f.A_DATE, f.UPDATED, 0),
    (PLAIN, "modified"): (f.A_DATE, f.UPDATED, 0),
    (PLAIN, "lastbuilddate"): (f.A_DATE, f.UPDATED, 0),
    (TERMS, "modified"): (f.A_DATE, f.UPDATED, 1),
    (PLAIN, "author"): (f.A_AUTHOR, 0, 0),
    (DC, "creator"): (f.A_AUTHOR, 0, 1),
    (DC, "author"): (f.A_AUTHOR, 0, 1),
    (ITUNES, "author"): (f.A_AUTHOR, 0, 2),
    (PLAIN, "managingeditor"): (f.A_AUTHOR, 0, 3),
    (PLAIN, "name"): (f.A_PERSON, 0, 0),
    (PLAIN, "email"): (f.A_PERSON, 0, 1),
    (PLAIN, "uri"): (f.A_PERSON, 0, 2),
    (PLAIN, "url"): (f.A_PERSON, 0, 2),
    (PLAIN, "category"): (f.A_CATEGORY, 0, 0),
    (DC, "subject"): (f.A_CATEGORY, 0, 0),
    (PLAIN, "ttl"): (f.A_TEXT, f.TTL, 0),
    (SYNDICATION, "updateperiod"): (f.A_TEXT, f.PERIOD, 0),
    (SYNDICATION, "updatefrequency"): (f.A_TEXT, f.FREQUENCY, 0),
    (GEO, "lat"): (f.A_PLACE, g.LATITUDE, 0),
    (GEO, "long"): (f.A_PLACE, g.LONGITUDE, 0),
    (GEO, "lon"): (f.A_PLACE, g.LONGITUDE, 0),
    (GEO, "alt"): (f.A_PLACE, g.ELEVATION, 0),
    (GEO, "lat_long"): (f.A_PLACE, g.POINT, 0),
    (GEORSS, "point"): (f.A_PLACE, g.POINT, 0),
    (GEORSS, "line"): (f.A_PLACE, g.POINTS, 0),
    (GEORSS, "polygon"): (f.A_PLACE, g.POINTS, 0),
    (GEORSS, "box"): (f.A_PLACE, g.POINTS, 0),
    (GEORSS, "circle"): (f.A_PLACE, g.CIRCLE, 0),
    (GEORSS, "elev"): (f.A_PLACE, g.ELEVATION, 0),
    (GML, "pos"): (f.A_PLACE, g.POINT, 0),
    (GML, "poslist"): (f.A_PLACE, g.POINTS, 0),
    (GML, "coordinates"): (f.A_PLACE, g.POINTS, 0),
    (GML, "lowercorner"): (f.A_PLACE, g.CORNER, 0),
    (GML, "uppercorner"): (f.A_PLACE, g.CORNER, 0),
    (GML, "radius"): (f.A_PLACE, g.RADIUS, 0),
    (CAP, "polygon"): (f.A_PLACE, g.POINTS, 0),
    (CAP, "circle"): (f.A_PLACE, g.KILOMETRE_CIRCLE, 0),
}
_ATTRIBUTES: Final[Mapping[str, int]] = {
    "href": f.HREF,
    "rel": f.REL,
    "type": f.TYPE,
    "term": f.TERM,
    "ispermalink": f.IS_PERMALINK,
    "mode": f.MODE,
    "version": f.VERSION,
    "srsname": f.SRS_NAME,
    "srsdimension": f.SRS_DIMENSION,
    "base": f.XML_BASE,
    "about": f.ABOUT,
    "uom": f.UOM,
}

LOCALS: Final[Mapping[str, int]] = {
    word: number
    for number, word in enumerate(dict.fromkeys([name for _, name in _ELEMENTS] + list(_ATTRIBUTES)), start=1)
}  # 0 is every other name


def _actions() -> AnyArray:
    table = np.zeros((_NAMESPACES, len(LOCALS) + 1), np.int32)
    for (namespace, name), (action, slot, rank) in _ELEMENTS.items():
        packed = action | slot << 8 | rank << 16
        for one in _PLAINS if namespace == PLAIN else (namespace,):
            table[one, LOCALS[name]] = packed
    return table.ravel()


def _attribute_numbers() -> UInt8s:
    table = np.zeros(len(LOCALS) + 1, np.uint8)
    for name, number in _ATTRIBUTES.items():
        table[LOCALS[name]] = number
    return table


def _hash(word: str) -> int:
    """FNV-1a of a word in lower case, as the kernels have it."""
    value = 0xCBF29CE484222325
    for byte in word.lower().encode():
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def _hashes(words: Iterable[str]) -> UInt64s:
    return np.array([_hash(word) for word in words], np.uint64)


def _table(kinds: Mapping[int, str]) -> tuple[UInt64s, UInt8s]:
    """Hashes of words in order, and the kind of each."""
    pairs = sorted((_hash(word), kind) for kind, words in kinds.items() for word in words.split())
    return np.array([pair[0] for pair in pairs], np.uint64), np.array([pair[1] for pair in pairs], np.uint8)


def _uris() -> UInt64s:
    """Hash and number of each URI, without what people write differently: scheme, www, a last slash or '#'."""
    words = []
    for uri, number in URIS.items():
        plain = uri.rstrip("#/").split("://", 1)[-1].removeprefix("www.")
        words += [_hash(plain), number]
    return np.array(words, np.uint64)


ACTIONS = _actions()
ATTRIBUTE_NUMBERS = _attribute_numbers()
URI_HASHES = _uris()
#: Words of attributes that the kernel asks for, by their place.
SAYINGS = _hashes(
    [
        "CRS84",
        "km",
        "alternate",
        "text/html",
        "application/xhtml+xml",
        "false",
        "xhtml",
        "text",
        "text/plain",
        "xml",
        "base64",
    ]
)
TAGS, TAG_KINDS = _table(
    {
        h.KEPT: "a abbr acronym address article aside audio b bdi bdo big blockquote caption center cite code colgroup dd del"
        " details dfn dir div dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header i ins kbd li main map mark menu nav"
        " ol p pre q rp rt ruby s samp section small span strike strong sub summary sup table tbody td tfoot th thead time tr tt"
        " u ul var video",
        h.VOID: "area br col hr img source wbr",
        h.EMPTIED: "script style iframe noscript noembed noframes xmp textarea title template svg math object applet select"
        " plaintext",
        h.DROPPED: "html head body base basefont meta link embed param frame frameset form input button fieldset legend label"
        " output option optgroup datalist keygen isindex image canvas dialog track portal marquee blink bgsound layer ilayer"
        " nextid spacer multicol slot hgroup search data meter progress picture",
    }
)
ATTRIBUTE_NAMES, ATTRIBUTE_KINDS = _table(
    {
        h.ATTRIBUTE: "abbr align alt axis bgcolor border cellpadding cellspacing char charoff clear color cols colspan compact"
        " controls coords datetime dir face headers height hspace lang noshade nowrap open rel reversed rows rowspan rules scope"
        " shape size span start summary title type valign value vspace width",
        h.LINK: "href src cite longdesc poster background usemap",
    }
)
_SCHEMES = (
    "http https ftp ftps sftp mailto news nntp magnet gopher irc ircs xmpp sip sips tel sms geo feed webcal rtsp rsync git"
    " ssh svn callto urn tag doi"
)
SCHEMES = np.sort(_hashes(_SCHEMES.split()))
