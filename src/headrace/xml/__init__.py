"""XML: a tokeniser of bytes, twig patterns over its events, joins of their fragments, and XQuery over them. [PQP] ch. 7"""

from headrace.errors import IllFormed
from headrace.xml.documents import DocumentMatcher, read_document
from headrace.xml.fwr import Results, XQuery, xquery
from headrace.xml.limits import Limits
from headrace.xml.machine import TwigMachine, TwigStats
from headrace.xml.tokeniser import Events, Tokeniser
from headrace.xml.twig import Matcher, Twig, Twigs
from headrace.xml.twig_join import TwigJoin

__all__ = [
    "DocumentMatcher",
    "Events",
    "IllFormed",
    "Limits",
    "Matcher",
    "Results",
    "Tokeniser",
    "Twig",
    "TwigJoin",
    "TwigMachine",
    "TwigStats",
    "Twigs",
    "XQuery",
    "read_document",
    "xquery",
]
