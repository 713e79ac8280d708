"""The tables by which the scanner tells bytes apart."""

from __future__ import annotations

import numpy as np

from headrace.arrays import UInt8s
from headrace.kernels import xml_scan as x

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
_PUBLIC = b" \r\n" + _LETTERS + _DIGITS + b"-'()+,./:=?;!*#@$_%"  # what a public identifier is made of


def _tables() -> UInt8s:
    tables = np.zeros((5, 256), np.uint8)
    text, value, name, skipped, public = tables
    illegal = [b for b in range(32) if b not in b"\t\n\r"]
    for table, wide, bad in (
        (text, x.WIDE, x.ILLEGAL),
        (value, x.WIDE, x.ILLEGAL),
        (skipped, x.SKIPPED_WIDE, x.SKIPPED_ILLEGAL),
    ):
        table[128:] = wide
        table[illegal] = bad
    for b, kind in ((b"<", x.LESS), (b"&", x.AMPERSAND), (b"]", x.BRACKET), (b"\r", x.RETURN)):
        text[b[0]] = kind
    for b, kind in ((b"<", x.LESS), (b"&", x.AMPERSAND), (b"\"'", x.QUOTES), (b"\t\n\r", x.SPACE)):
        value[list(b)] = kind
    for b, kind in ((b"-", x.DASH), (b"?", x.QUESTION), (b"]", x.SKIPPED_BRACKET), (b"\r", x.SKIPPED_RETURN)):
        skipped[b[0]] = kind
    name[128:] = x.NAME_WIDE
    name[list(_LETTERS + b"_:")] = x.NAME_START
    name[list(_DIGITS + b"-.")] = x.NAME_OTHER
    public[list(_PUBLIC)] = 1
    return tables.ravel()


CLASSES = _tables()
