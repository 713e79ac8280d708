"""Dates of feeds: RFC 822, RFC 3339, and the usual wrong forms of both, to microseconds since 1970."""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, U8, helper, i64, kernel, void

MISSING = np.int64(-(1 << 63))  # no date: as far from every date as can be
_SECOND = np.int64(1_000_000)
_MONTHS = b"janfebmaraprmayjunjulaugsepoctnovdec"
_WEEKDAYS = b"montuewedthufrisatsun"
# Names of zones, four letters each, and their hours east of Greenwich: those of RFC 822 and of the places whose feeds use names.
_ZONES = (
    b"ut  utc gmt wet est edt cst cdt mst mdt pst pdt ast adt hst bst cet cestmet eet eestmsk jst kst aestaedtnzstnzdtaksthkt"
    b" sgt "
)
_HOURS = np.array(
    [0, 0, 0, 0, -5, -4, -6, -5, -7, -6, -8, -7, -4, -3, -10, 1, 1, 2, 1, 2, 3, 3, 9, 9, 10, 11, 12, 13, -9, 8, 8],
    np.int64,
)
_MONTH_LETTERS = np.frombuffer(_MONTHS, np.uint8)
_DAY_LETTERS = np.frombuffer(_WEEKDAYS, np.uint8)
_ZONE_LETTERS = np.frombuffer(_ZONES, np.uint8)
_NO_ZONE = np.int64(1 << 20)  # seconds: no zone was read yet


@helper
def _digit(b):
    return 48 <= b <= 57


@helper
def _lower(b):
    return b + 32 if 65 <= b <= 90 else b


@helper
def _letter(b):
    return 97 <= _lower(b) <= 122


@helper
def _known(text, p, length, names, width):
    """The number of the name at p in a list of names of `width` letters, or -1; longer words match by their start."""
    for k in range(names.size // width):
        same = True
        for i in range(width):
            want = names[k * width + i]
            have = _lower(text[p + i]) if i < length else np.uint8(32)
            if have != want:
                same = False
                break
        if same:
            return k
    return -1


@helper
def _moment(year, month, day, hour, minute, second, micro, zone):
    """Microseconds since 1970 of a date that is checked here; MISSING if there is no such date."""
    if not (1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31):
        return MISSING
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and (minute > 0 or second > 0)):
        return MISSING
    if abs(zone) > 24 * 3600:
        return MISSING
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    longest = 31
    if month == 4 or month == 6 or month == 9 or month == 11:
        longest = 30
    elif month == 2:
        longest = 29 if leap else 28
    if day > longest:
        return MISSING
    # Days by the calendar that begins in March, in which a leap day is the last of its year.
    y = year - 1 if month <= 2 else year
    m = month + 9 if month <= 2 else month - 3
    days = 365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 + day - 1 - 719468
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - zone
    if seconds < -62135596800 or seconds > 253402300799:  # the years 1 to 9999, which all languages have dates for
        return MISSING
    return seconds * _SECOND + micro


@helper
def _number(text, p, end, most):
    """The digits at p, at most so many: their value, and where they end."""
    value = np.int64(0)
    q = p
    while q < end and q - p < most and _digit(text[q]):
        value = value * 10 + np.int64(text[q]) - 48
        q += 1
    return value, q


@helper
def _time(text, p, end):
    """Hour, minute, second and microsecond at p, with or without colons, and where they end; an hour of -1 for no time."""
    none = np.int64(-1)
    zero = np.int64(0)
    hour, q = _number(text, p, end, 2)
    if q == p:
        return none, zero, zero, zero, p
    minute = second = micro = zero
    colons = q < end and text[q] == 58
    if colons or (q < end and _digit(text[q])):
        at = q + 1 if colons else q
        minute, q = _number(text, at, end, 2)
        if q == at:
            return none, zero, zero, zero, p
        again = q < end and text[q] == 58
        if again or (not colons and q < end and _digit(text[q])):
            at = q + 1 if again else q
            second, q = _number(text, at, end, 2)
            if q == at:
                return none, zero, zero, zero, p
            if q + 1 < end and (text[q] == 46 or text[q] == 44) and _digit(text[q + 1]):
                q += 1
                scale = np.int64(100_000)
                while q < end and _digit(text[q]):
                    micro += (np.int64(text[q]) - 48) * scale
                    scale //= 10
                    q += 1
    return hour, minute, second, micro, q


@helper
def _offset(text, p, end):
    """Seconds of the zone +hh, +hhmm or +hh:mm at p, and where it ends; _NO_ZONE if it is none."""
    value, q = _number(text, p + 1, end, 4)
    digits = q - p - 1
    if digits == 0 or digits == 3:
        return _NO_ZONE, p
    hours, minutes = value, np.int64(0)
    if digits == 4:
        hours, minutes = value // 100, value % 100
    elif q + 2 < end and text[q] == 58 and _digit(text[q + 1]):
        minutes, q = _number(text, q + 1, end, 2)
    if minutes > 59:
        return _NO_ZONE, p
    seconds = hours * 3600 + minutes * 60
    return (-seconds if text[p] == 45 else seconds), q


@helper
def _zone(text, p, end):
    """Seconds of the zone at p, a name or an offset, and where it ends; none is that of Greenwich."""
    while p < end and text[p] == 32:
        p += 1
    if p >= end:
        return np.int64(0), p
    if text[p] == 43 or text[p] == 45:
        return _offset(text, p, end)
    q = p
    while q < end and _letter(text[q]):
        q += 1
    if q - p == 1:
        return np.int64(0), q  # Z; other letters were used with both signs, so RFC 2822 has them all as Z
    if q > p and q - p <= 4:
        k = _known(text, p, q - p, _ZONE_LETTERS, 4)
        if k >= 0:
            zone = _HOURS[k] * 3600
            if q < end and (text[q] == 43 or text[q] == 45) and zone == 0:  # GMT+01:00
                return _offset(text, q, end)
            return zone, q
    return _NO_ZONE, p


@helper
def _iso(text, p, end):
    """A date that begins with a year of four digits."""
    year, q = _number(text, p, end, 4)
    month = day = np.int64(1)
    if q < end and (text[q] == 45 or text[q] == 47):
        at = q + 1
        month, q = _number(text, at, end, 2)
        if q == at:
            return MISSING
        if q < end and (text[q] == 45 or text[q] == 47):
            at = q + 1
            day, q = _number(text, at, end, 2)
            if q == at:
                return MISSING
    elif q < end and _digit(text[q]):
        at = q
        month, q = _number(text, at, end, 2)
        day, q = _number(text, q, end, 2)
        if q - at != 4:
            return MISSING
    zero = np.int64(0)
    if q >= end:
        return _moment(year, month, day, zero, zero, zero, zero, zero)
    if text[q] == 84 or text[q] == 116 or text[q] == 32:
        q += 1
        while q < end and text[q] == 32:
            q += 1
    elif not _digit(text[q]):
        return MISSING
    if q >= end:
        return _moment(year, month, day, zero, zero, zero, zero, zero)
    hour, minute, second, micro, q = _time(text, q, end)
    if hour < 0:
        return MISSING
    zone, q = _zone(text, q, end)
    if zone == _NO_ZONE:
        return MISSING
    while q < end and text[q] == 32:
        q += 1
    if q < end and text[q] != 91 and text[q] != 40:  # a comment such as [Europe/Paris] may follow
        return MISSING
    return _moment(year, month, day, hour, minute, second, micro, zone)


@helper
def _spoken(text, p, end):
    """A date with the name of its month, in any order, or of three numbers that can only be read in one way."""
    year = month = day = hour = np.int64(-1)
    minute = second = micro = np.int64(0)
    zone = np.int64(_NO_ZONE)
    while p < end:
        b = text[p]
        if _letter(b):
            q = p
            while q < end and (_letter(text[q]) or text[q] >= 128):
                q += 1
            length = q - p
            k = _known(text, p, length, _MONTH_LETTERS, 3) if length >= 3 else -1
            if k >= 0 and month < 0:
                month = np.int64(k + 1)
            elif length == 2 and hour >= 0 and _lower(text[p + 1]) == 109 and (_lower(b) == 97 or _lower(b) == 112):
                if hour > 12:
                    return MISSING
                hour = hour % 12 + (12 if _lower(b) == 112 else 0)
            elif hour >= 0 and zone == _NO_ZONE and (length < 3 or _known(text, p, length, _DAY_LETTERS, 3) < 0):
                zone, after = _zone(text, p, end)
                q = max(q, after)
            p = q
        elif _digit(b):
            value, q = _number(text, p, end, 9)
            digits = q - p
            if q < end and text[q] == 58 and hour < 0:
                hour, minute, second, micro, q = _time(text, p, end)
                if hour < 0:
                    return MISSING
            elif (
                q + 1 < end and (text[q] == 47 or text[q] == 46 or text[q] == 45) and _digit(text[q + 1]) and month < 0
            ):
                dotted = text[q] == 46
                second_, q = _number(text, q + 1, end, 4)
                if q + 1 >= end or not _digit(text[q + 1]):
                    return MISSING
                third, after = _number(text, q + 1, end, 4)
                if digits == 4:
                    year, month, day = value, second_, third
                elif dotted or value > 12:
                    day, month, year = value, second_, third
                elif second_ > 12:
                    month, day, year = value, second_, third
                else:
                    return MISSING  # 3/4/2005 is one day in America and another elsewhere
                if digits != 4 and after - q - 1 == 2:
                    year += 2000 if year < 50 else 1900
                q = after
            elif digits <= 2 and day < 0:
                day = value
            elif year < 0 and digits <= 4:
                year = value
                if digits <= 2:
                    year += 2000 if value < 50 else 1900
                elif digits == 3:
                    year += 1900
            else:
                return MISSING
            p = q
        elif (
            (b == 43 or b == 45)
            and hour >= 0
            and p + 1 < end
            and _digit(text[p + 1])
            and (zone == _NO_ZONE or text[p - 1] == 32)
        ):
            zone, q = _offset(text, p, end)
            if zone == _NO_ZONE:
                return MISSING
            p = q
        elif b == 40:  # a comment
            while p < end and text[p] != 41:
                p += 1
            p += 1
        else:
            p += 1
    if year < 0 or month < 0 or day < 0:
        return MISSING
    if zone == _NO_ZONE:
        zone = np.int64(0)
    return _moment(year, month, day, max(hour, 0), minute, second, micro, zone)


@helper
def date_at(text, start, end):
    """The date that text[start:end] says, in microseconds since 1970; MISSING if it is none. Without a zone it is UTC."""
    while start < end and text[start] <= 32:
        start += 1
    while end > start and text[end - 1] <= 32:
        end -= 1
    if end - start > 100:  # characters: no date has so many
        return MISSING
    digits = 0
    while start + digits < end and _digit(text[start + digits]):
        digits += 1
    if digits == 4 or digits == 8 or digits == 14:
        found = _iso(text, start, end)
        if found != MISSING or digits > 4:
            return found
    return _spoken(text, start, end)


@kernel(void(U8, I64, i64))
def dates(text, offsets, out):
    """The dates that text[offsets[i]:offsets[i + 1]] say."""
    for i in range(out.size):
        out[i] = date_at(text, offsets[i], offsets[i + 1])
