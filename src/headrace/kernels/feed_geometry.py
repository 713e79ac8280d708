"""Places of items: numbers of GeoRSS, GML and W3C geo to a point and a bounding box."""

from __future__ import annotations

import math

import numpy as np

from headrace.kernels.jit import helper

# Words of an item's geometry: its first point, its box, its elevation, and half of a point that waits for the other.
LAT, LONG, XMIN, YMIN, XMAX, YMAX, ELEV, HALF_LAT, HALF_LONG, LAST_LAT, LAST_LONG = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
WORDS = 11
# What an element of geometry holds.
POINT, POINTS, CORNER, CIRCLE, LATITUDE, LONGITUDE, ELEVATION, RADIUS, KILOMETRE_CIRCLE = 0, 1, 2, 3, 4, 5, 6, 7, 8
_DEGREE = 111_195.0  # metres of a degree of latitude, on a sphere with the mean radius of the Earth
_POWERS = np.array([10.0**k for k in range(23)])  # 10^22 is the last that a double holds exactly
_EXACT = np.int64(1 << 53)


@helper
def _quotient(m, power):
    """m / power, both exact, nearly always rounded as if it had been computed without end."""
    high = np.float64(m)
    low = np.float64(m - np.int64(high))
    q = high / power
    # q * power exactly, as the sum of two doubles (Dekker).
    a = 134217729.0 * q
    q_high = a - (a - q)
    q_low = q - q_high
    b = 134217729.0 * power
    p_high = b - (b - power)
    p_low = power - p_high
    product = q * power
    error = ((q_high * p_high - product) + q_high * p_low + q_low * p_high) + q_low * p_low
    return q + ((high - product) - error + low) / power


@helper
def number_at(text, p, end):
    """The decimal number at p and where it ends; p itself if there is none."""
    q = p
    negative = False
    if q < end and (text[q] == 45 or text[q] == 43):
        negative = text[q] == 45
        q += 1
    m = np.int64(0)
    scale = 0
    digits = 0
    dot = False
    while q < end:
        b = np.int64(text[q])
        if 48 <= b <= 57:
            digits += 1
            if m < 100_000_000_000_000_000:  # 18 digits are more than a double holds
                m = m * 10 + b - 48
                if dot:
                    scale -= 1
            elif not dot:
                scale += 1
        elif b == 46 and not dot:
            dot = True
        else:
            break
        q += 1
    if digits == 0:
        return 0.0, p
    if q < end and (text[q] == 101 or text[q] == 69):
        r = q + 1
        down = False
        if r < end and (text[r] == 45 or text[r] == 43):
            down = text[r] == 45
            r += 1
        power = 0
        begin = r
        while r < end and 48 <= text[r] <= 57 and power < 10_000:
            power = power * 10 + np.int64(text[r]) - 48
            r += 1
        if r > begin:
            scale += -power if down else power
            q = r
    value = np.float64(m)
    if scale < 0 and scale >= -22:
        value = value / _POWERS[-scale] if m < _EXACT else _quotient(m, _POWERS[-scale])
    elif scale > 0 and scale <= 22:
        value = value * _POWERS[scale]
    elif scale != 0:
        value = value * 10.0**scale
    return (-value if negative else value), q


@helper
def _add(place, lat, long):
    """Let a box hold a point; False if there is no such place."""
    if not (abs(lat) <= 90.0 and abs(long) <= 360.0):
        return False
    if math.isnan(place[XMIN]):
        place[XMIN] = place[XMAX] = long
        place[YMIN] = place[YMAX] = lat
    else:
        place[XMIN] = min(place[XMIN], long)
        place[XMAX] = max(place[XMAX], long)
        place[YMIN] = min(place[YMIN], lat)
        place[YMAX] = max(place[YMAX], lat)
    place[LAST_LAT] = lat
    place[LAST_LONG] = long
    return True


@helper
def _add_point(place, lat, long):
    if not _add(place, lat, long):
        return False
    if math.isnan(place[LAT]):
        place[LAT] = lat
        place[LONG] = long
    return True


@helper
def _add_circle(place, lat, long, metres):
    if not (metres >= 0.0 and metres < 3e7):
        return False
    if not _add_point(place, lat, long):
        return False
    high = metres / _DEGREE
    wide = 180.0
    if abs(lat) + high < 90.0:
        wide = min(180.0, high / math.cos(math.radians(lat)))
    _add(place, max(lat - high, -90.0), max(long - wide, -360.0))
    _add(place, min(lat + high, 90.0), min(long + wide, 360.0))
    place[LAST_LAT] = lat
    place[LAST_LONG] = long
    return True


@helper
def add_geometry(text, start, end, shape, swapped, dimension, unit, place):
    """Add what an element of geometry says to an item's place; False if it could not be understood, or lies nowhere."""
    values = np.empty(3)
    have = 0
    found = 0
    # A position of three numbers has a height; a list of them must say so, or be no list of pairs.
    step = dimension if dimension == 3 else 2
    p = start
    good = True
    while p < end:
        b = text[p]
        if b <= 32 or b == 44 or b == 59:
            p += 1
            continue
        value, q = number_at(text, p, end)
        if q == p:
            if b == 0xC2 or b == 0xA0:  # a space that does not break
                p += 1
                continue
            good = False
            break
        p = q
        values[have] = value
        have += 1
        found += 1
        if shape == POINTS and have == step:
            have = 0
            lat, long = (values[1], values[0]) if swapped else (values[0], values[1])
            good = _add(place, lat, long) and good
        elif have == 3:
            break
    if shape == POINTS:
        return good and found >= 2 and have == 0
    if not good or found == 0:
        return False
    if shape == LATITUDE or shape == LONGITUDE:
        place[HALF_LAT if shape == LATITUDE else HALF_LONG] = values[0]
        if math.isnan(place[HALF_LAT]) or math.isnan(place[HALF_LONG]):
            return True
        lat, long = place[HALF_LAT], place[HALF_LONG]
        place[HALF_LAT] = place[HALF_LONG] = np.nan
        return _add_point(place, lat, long)
    if shape == ELEVATION:
        if math.isnan(place[ELEV]) and math.isfinite(values[0]):
            place[ELEV] = values[0]
        return True
    if shape == RADIUS:
        return not math.isnan(place[LAST_LAT]) and _add_circle(
            place, place[LAST_LAT], place[LAST_LONG], values[0] * unit
        )
    if found < 2:
        return False
    lat, long = (values[1], values[0]) if swapped else (values[0], values[1])
    if shape == CORNER:
        return _add(place, lat, long)
    if shape == CIRCLE or shape == KILOMETRE_CIRCLE:
        return found >= 3 and _add_circle(place, lat, long, values[2] * (1000.0 if shape == KILOMETRE_CIRCLE else 1.0))
    if found >= 3 and math.isnan(place[ELEV]):
        place[ELEV] = values[2]
    return _add_point(place, lat, long)
