"""XML: a tokeniser of bytes and twig patterns over its events. [PQP] ch. 7"""

from headrace.errors import IllFormed
from headrace.xml.documents import DocumentMatcher, read_document
from headrace.xml.limits import Limits
from headrace.xml.machine import TwigMachine, TwigStats
from headrace.xml.tokeniser import Events, Tokeniser
from headrace.xml.twig import Matcher, Twig, Twigs

__all__ = [
    "DocumentMatcher",
    "Events",
    "IllFormed",
    "Limits",
    "Matcher",
    "Tokeniser",
    "Twig",
    "TwigMachine",
    "TwigStats",
    "Twigs",
    "read_document",
]
