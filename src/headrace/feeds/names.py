"""Names of a document's elements and attributes as (prefix, local name), numbered as the kernel wants them."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Int32s
from headrace.feeds.vocabulary import LOCALS, PREFIXES

# Names that most feeds have: they keep their numbers from document to document.
_USUAL = (
    "rss channel item title link description pubDate guid author category ttl language lastBuildDate generator copyright docs"
    " image url width height enclosure comments source feed entry id updated published summary content name email uri subtitle"
    " rights version xmlns isPermaLink href rel type term label scheme domain length rdf:RDF rdf:about rdf:resource rdf:Seq"
    " rdf:li items atom:link dc:date dc:creator dc:subject dc:title dc:description content:encoded geo:lat geo:long"
    " geo:Point geo:alt georss:point georss:box georss:line georss:polygon georss:circle georss:elev georss:where gml:Point"
    " gml:pos gml:posList gml:Envelope gml:lowerCorner gml:upperCorner gml:LineString gml:Polygon gml:exterior gml:LinearRing"
    " xmlns:geo xmlns:georss xmlns:gml xmlns:dc xmlns:content xmlns:atom xmlns:rdf xmlns:media xmlns:sy"
    " sy:updatePeriod sy:updateFrequency xml:base xml:lang issued modified created tagline mode cloud"
)
USUAL = _USUAL.split()


class Names:
    """What the tokeniser's numbers of names stand for: prefix, local name, and the prefix that an xmlns attribute declares."""

    def __init__(self) -> None:
        self._prefix_numbers = {prefix: number for number, prefix in enumerate(PREFIXES)}
        self._usual_prefixes = list(PREFIXES.values())
        self.prefixes: Int32s = np.zeros(256, np.int32)
        self.locals: Int32s = np.zeros(256, np.int32)
        self.declares: Int32s = np.full(256, -1, np.int32)
        self._learn(0, list(USUAL))
        self._usual = len(self._prefix_numbers)
        self.bindings: Int32s = np.empty(0, np.int32)

    def begin(self, others: list[str]) -> None:
        """Begin a document that has these names beside the usual ones, in the order of their numbers."""
        if len(self._prefix_numbers) > self._usual:
            for prefix in list(self._prefix_numbers)[self._usual :]:
                del self._prefix_numbers[prefix]
            del self._usual_prefixes[self._usual :]
        if others:
            self._learn(len(USUAL), others)
        self.bindings = np.array(self._usual_prefixes, np.int32)

    def _learn(self, first: int, names: list[str]) -> None:
        last = first + len(names)
        while self.prefixes.size < last:
            self.prefixes, self.locals, self.declares = (
                np.concatenate([table, table]) for table in (self.prefixes, self.locals, self.declares)
            )
        for number, name in enumerate(names, start=first):
            prefix, _, local = name.rpartition(":")
            self.declares[number] = -1
            if prefix == "xmlns":
                self.declares[number] = self._prefix(local.lower())
            elif name == "xmlns":
                self.declares[number] = 0
            self.prefixes[number] = self._prefix(prefix.lower())
            self.locals[number] = LOCALS.get(local.lower(), 0)

    def _prefix(self, prefix: str) -> int:
        number = self._prefix_numbers.setdefault(prefix, len(self._prefix_numbers))
        if number == len(self._usual_prefixes):
            self._usual_prefixes.append(PREFIXES.get(prefix, -1))
        return number
