"""The XML section of the benchmarks: tokenising and twig matching beside expat and lxml, on a document of XMark's shape."""

from __future__ import annotations

SECTION = "xml"
TWIG = "//item[id][name]"  # [PQP] ch. 7: the items of an auction site
MANY = 1000  # standing twigs over one document
