"""The XML section of the benchmarks: tokenising, twigs and joins beside what one would use instead, on XMark's shape."""

from __future__ import annotations

SECTION = "xml"
OURS, SPARK = "headrace", "spark, row tag"
TWIG = "//item[id][name]"  # [PQP] ch. 7: the items of an auction site
CLOSED = "//closed_auction[itemref/item][price]"  # and the auctions that they were sold in
LARGE = 100_000_000  # bytes of a document from which on it is read once
#: Elements of the document with some of their children, of which standing twigs are made.
CHILDREN = {
    "item": ("location", "quantity", "name", "payment", "description", "shipping", "incategory", "mailbox", "@id"),
    "person": ("name", "emailaddress", "phone", "address", "profile", "watches", "@id"),
    "open_auction": (
        "initial",
        "bidder",
        "current",
        "itemref",
        "seller",
        "annotation",
        "quantity",
        "type",
        "interval",
        "@id",
    ),
    "closed_auction": ("seller", "buyer", "itemref", "price", "date", "quantity", "type", "annotation"),
    "bidder": ("date", "time", "personref", "increase"),
    "mail": ("from", "to", "date", "text"),
    "address": ("street", "city", "country", "zipcode"),
    "annotation": ("author", "description", "happiness"),
    "text": ("keyword", "emph"),
    "profile": ("interest", "education", "business", "@income"),
    "interval": ("start", "end"),
}
MANY = 1000  # standing twigs over one document
