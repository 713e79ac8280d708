"""Dates as feeds write them, against Python's own parsers."""

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.feed_dates import MISSING, dates


def read(*texts):
    encoded = [text.encode() for text in texts]
    out = np.empty(len(texts), np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded])]).astype(np.int64)
    dates(np.frombuffer(b"".join(encoded) or b" ", np.uint8), offsets, out)
    return [
        None if value == MISSING else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        for value in out.tolist()
    ]


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


FORMS = {
    "Tue, 10 Jun 2003 04:00:00 GMT": utc(2003, 6, 10, 4),
    "Tue, 10 Jun 2003 04:00:00 +0200": utc(2003, 6, 10, 2),
    "Tue, 10 Jun 2003 04:00:00 +02:00": utc(2003, 6, 10, 2),
    "Tue, 10 Jun 2003 04:00:00 GMT+02:00": utc(2003, 6, 10, 2),
    "Tue, 10 Jun 2003 04:00:00 GMT -0500": utc(2003, 6, 10, 9),
    "Tue, 10 Jun 2003 04:00:00 EST": utc(2003, 6, 10, 9),
    "Tue, 10 Jun 2003 04:00:00 PDT": utc(2003, 6, 10, 11),
    "Tue, 10 Jun 2003 04:00:00 CEST": utc(2003, 6, 10, 2),
    "Tue, 10 Jun 2003 04:00:00 Z": utc(2003, 6, 10, 4),
    "10 Jun 03 04:00 UT": utc(2003, 6, 10, 4),
    "10 Jun 99 04:00:00 GMT": utc(1999, 6, 10, 4),
    "Tuesday, 10 June 2003 04:00:00 GMT": utc(2003, 6, 10, 4),
    "tue, 10 jun 2003 4:00:00 gmt": utc(2003, 6, 10, 4),
    "Tue, 10 Jun 2003": utc(2003, 6, 10),
    "Tue,10 Jun 2003 04:00:00": utc(2003, 6, 10, 4),
    "  Tue, 10 Jun 2003 04:00:00 GMT (comment)\n": utc(2003, 6, 10, 4),
    "Tue Jun 10 04:00:00 2003": utc(2003, 6, 10, 4),
    "Tue Jun 10 04:00:00 GMT 2003": utc(2003, 6, 10, 4),
    "June 10, 2003 4:05 PM": utc(2003, 6, 10, 16, 5),
    "10-Jun-2003 12:05 AM": utc(2003, 6, 10, 0, 5),
    "2003-06-10T04:00:00Z": utc(2003, 6, 10, 4),
    "2003-06-10t04:00:00.123456789z": utc(2003, 6, 10, 4, 0, 0, 123456),
    "2003-06-10T04:00:00,5+02:00": utc(2003, 6, 10, 2, 0, 0, 500000),
    "2003-06-10T04:00+0200": utc(2003, 6, 10, 2),
    "2003-06-10T04:00:00-08": utc(2003, 6, 10, 12),
    "2003-06-10 04:00:00": utc(2003, 6, 10, 4),
    "2003-06-10 04:00:00 EST": utc(2003, 6, 10, 9),
    "2003-06-10T04:00:00+01:00[Europe/Paris]": utc(2003, 6, 10, 3),
    "2003-06-10": utc(2003, 6, 10),
    "2003-06-10T": utc(2003, 6, 10),
    "2003-06": utc(2003, 6, 1),
    "2003": utc(2003, 1, 1),
    "20030610": utc(2003, 6, 10),
    "20030610T040506Z": utc(2003, 6, 10, 4, 5, 6),
    "20030610040506": utc(2003, 6, 10, 4, 5, 6),
    "2003/06/10 04:00:00": utc(2003, 6, 10, 4),
    "Fri, 2006/09/15 08:19:53 EDT": utc(2006, 9, 15, 12, 19, 53),
    "15.09.2006 08:19": utc(2006, 9, 15, 8, 19),
    "25/12/2006": utc(2006, 12, 25),
    "12/25/06": utc(2006, 12, 25),
    "2004-02-29T24:00:00Z": utc(2004, 3, 1),
    "2005-12-31T23:59:60Z": utc(2006, 1, 1),
}


@pytest.mark.parametrize("text", FORMS)
def test_a_date_is_read(text):
    assert read(text) == [FORMS[text]]


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2003-02-29", "2003-13-01", "Tue, 32 Jun 2003 04:00:00 GMT", "10 Jun 2003 25:00:00 GMT", "3/4/2005",
     "2003-06-10T04:61:00Z", "1072915200", "0000-01-01", "9999-12-31T23:59:59-01:00", "Jun 2003", "x" * 1000],
)  # fmt: skip
def test_what_is_no_date_is_none(text):
    assert read(text) == [None]


zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1950, 1, 1), datetime(2049, 12, 31), timezones=zones)


@given(moments)
def test_oracle_dates_that_python_writes_are_read(moment):
    whole = moment.replace(microsecond=0)
    short = f"{moment:%d %b %y %H:%M:%S %z}"
    texts = [format_datetime(whole), short, whole.isoformat(), moment.isoformat(" "), f"{whole:%a %b %d %H:%M:%S %Y}"]
    assert read(*texts) == [whole, whole, whole, moment, whole.replace(tzinfo=UTC)]


@given(st.text(alphabet="0123456789 :-+/.,TZGMTJanuaryFeb", max_size=40))
def test_any_text_gives_a_date_or_none(text):
    (found,) = read(text)
    assert found is None or 1 <= found.year <= 9999
