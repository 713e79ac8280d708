"""Numbers of XPath 1.0 as intervals of decimal numbers.

The value of an element is compared with a number as a double, to which its digits are rounded. All decimal numbers that
round to a given double lie between two others, halfway to its neighbours; so a text is compared with these, digit by digit,
and never rounded itself.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from fractions import Fraction

_NUMBER = re.compile(r"[ \t\r\n]*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))[ \t\r\n]*")
_HIGHEST = Fraction(2**1024 - 2**970)  # from here on a number rounds to infinity


@dataclass(frozen=True)
class End:
    """A decimal number: sign (2 for infinity), digits without zeros at their ends, and how many of them are before the point."""

    sign: int
    digits: bytes
    whole: int


def number_of(text: str) -> float:
    """Return number(text) of XPath 1.0.

    Example:
        >>> number_of(" 12.50 "), number_of("-.5"), number_of("1e3"), number_of("+1")
        (12.5, -0.5, nan, nan)
    """
    found = _NUMBER.fullmatch(text)
    return float(found[1]) if found else math.nan


def interval(number: float) -> tuple[End, End, bool]:
    """Return the ends of the decimal numbers that round to a double, and whether the ends themselves do (ties go to even).

    Example:
        >>> interval(2.0**53)[0].digits, interval(2.0**53)[1].digits, interval(2.0**53)[2]
        (b'90071992547409915', b'9007199254740993', True)
    """
    inclusive = struct.unpack("<q", struct.pack("<d", number))[0] % 2 == 0
    if math.isinf(number):
        low, high = _end(_HIGHEST), End(2, b"", 0)
        return (low, high, True) if number > 0 else (_negative(high), _negative(low), True)
    below, above = math.nextafter(number, -math.inf), math.nextafter(number, math.inf)
    low_end = -_HIGHEST if math.isinf(below) else (Fraction(below) + Fraction(number)) / 2
    high_end = _HIGHEST if math.isinf(above) else (Fraction(above) + Fraction(number)) / 2
    return _end(low_end), _end(high_end), inclusive


def _end(value: Fraction) -> End:
    places = value.denominator.bit_length() - 1  # the denominator is a power of two, so the fraction has as many digits
    digits = str(abs(value.numerator) * 5**places).rjust(places + 1, "0")
    whole = digits[: len(digits) - places].lstrip("0")
    fraction = digits[len(digits) - places :].rstrip("0")
    return End((value > 0) - (value < 0), (whole + fraction).encode(), len(whole))


def _negative(end: End) -> End:
    return End(-end.sign, end.digits, end.whole)
