import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("12B", 12),
        ("2kB", 2000),
        ("2KiB", 2048),
        ("64MiB", 64 * 2**20),
        ("64mib", 64 * 2**20),
        (" 1.5 GB ", 1_500_000_000),
        ("0.5GiB", 2**29),
        ("1TB", 10**12),
        ("1TiB", 2**40),
        ("512k", 2**19),
        ("64m", 64 * 2**20),
        ("64M", 64 * 2**20),
        ("64 MiB", 64 * 2**20),
        ("1g", 2**30),
        ("1GB", 10**9),
        ("1.1MB", 1_100_000),
        ("64m", 64 * 2**20),
        ("64M", 64 * 2**20),
        ("1g", 2**30),
        ("1.5 G", 3 * 2**29),
        ("8k", 8192),
        ("2t", 2**41),
        ("1GB", 10**9),
        ("64 MiB", 64 * 2**20),
    ],
)
def test_sizes(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("bad", ["", "MiB", "64 apples", "64Mi", "-1MiB", "1e6", "1,5GB", "٣MB", 1.5, None, True, b"1"])
def test_what_is_not_a_size_is_refused_with_examples(bad):
    with pytest.raises(BadInput) as caught:
        parse_size(bad, name="memory")
    assert f"memory={bad!r}" in str(caught.value)
    assert "'64MiB'" in str(caught.value)


@pytest.mark.parametrize("bad", [0, -1, "0", "0MiB", "0.1B"])
def test_a_size_is_positive(bad):
    with pytest.raises(BadInput, match="at least 1 byte"):
        parse_size(bad)


def test_zero_where_it_is_allowed():
    assert parse_size("0MiB", zero=True) == 0
    with pytest.raises(BadInput, match="at least 0 byte"):
        parse_size(-1, zero=True)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (1536, "1.5KiB"),
        (2**20 - 1, "1MiB"),
        (64 * 2**20, "64MiB"),
        (5 * 2**50, "5120TiB"),
        (-2048, "-2KiB"),
    ],
)
def test_sizes_for_people(nbytes, text):
    assert format_size(nbytes) == text


@given(st.integers(1, 2**50))
def test_a_formatted_size_reads_back(nbytes):
    assert math.isclose(parse_size(format_size(nbytes)), nbytes, rel_tol=0.06)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (10, 10.0),
        (0.25, 0.25),
        ("10", 10.0),
        ("10s", 10.0),
        ("250ms", 0.25),
        ("5us", 5e-6),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1d", 86400.0),
        ("1m30s", 90.0),
        ("1h 30m", 5400.0),
        ("1.5 s", 1.5),
        (timedelta(minutes=2), 120.0),
    ],
)
def test_durations(value, seconds):
    assert parse_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize("bad", ["", "s", "10 apples", "1m30", "s10", "10s!", None, True, [1]])
def test_what_is_not_a_duration_is_refused_with_examples(bad):
    with pytest.raises(BadInput) as caught:
        parse_duration(bad, name="deadline")
    assert f"deadline={bad!r}" in str(caught.value)
    assert "'250ms'" in str(caught.value)


@pytest.mark.parametrize("bad", [0, -1, "0s", "-1s", "nan", "inf", math.nan, timedelta(0)])
def test_a_duration_is_positive_and_finite(bad):
    with pytest.raises(BadInput):
        parse_duration(bad)
    assert parse_duration(0, zero=True) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (0.9999999, "1s"),
        (5e-6, "5us"),
        (3.14159, "3.14s"),
        (59.99, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (90061, "1d1h1m1s"),
        (-2, "-2s"),
    ],
)
def test_durations_for_people(seconds, text):
    assert format_duration(seconds) == text


@given(st.floats(1e-9, 1e7))
def test_a_formatted_duration_reads_back(seconds):
    assert math.isclose(parse_duration(format_duration(seconds)), seconds, rel_tol=0.01)
