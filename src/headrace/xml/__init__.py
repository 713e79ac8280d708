"""XML: a tokeniser of bytes, twig patterns over its events, joins of their fragments, and XQuery over them. [PQP] ch. 7"""

from headrace.errors import IllFormed
from headrace.xml.fwr import Results, XQuery, xquery
from headrace.xml.limits import Limits
from headrace.xml.machine import TwigMachine
from headrace.xml.tokeniser import Events, Tokeniser
from headrace.xml.twig import Matcher, Twig, Twigs
from headrace.xml.twig_join import TwigJoin

__all__ = [
    "Events",
    "IllFormed",
    "Limits",
    "Matcher",
    "Results",
    "Tokeniser",
    "Twig",
    "TwigJoin",
    "TwigMachine",
    "Twigs",
    "XQuery",
    "xquery",
]
