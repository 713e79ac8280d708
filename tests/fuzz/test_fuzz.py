"""Damaged pipeline files, feeds and XML: a few seconds of what `python -m soak fuzz` does for an hour."""

import random

import pytest

from soak import fuzz
from soak.fuzz import TARGETS, WORDS, corpus_of, mutated

INPUTS = {"toml": 120, "feeds": 250, "xml": 500}  # a second or two each


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_damaged_input_is_read_or_refused_in_words(target):
    report = fuzz.fuzz(target, seconds=60, seed=19, most=INPUTS[target])
    assert not report.findings, f"{report.findings[0].words}\n{report.findings[0].data!r}"
    assert report.inputs == INPUTS[target]
    assert 0 < report.refused < report.inputs  # what is fine goes on, and most damage is seen


@pytest.mark.soak
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_damaged_inputs_for_an_hour(target):
    report = fuzz.fuzz(target, seconds=3600, seed=random.SystemRandom().getrandbits(32))
    assert not report.findings, f"{report.findings[0].words}\n{report.findings[0].data!r}"


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_same_seed_gives_the_same_inputs(target):
    corpus = corpus_of(target)
    one, other = (
        [mutated(corpus[0], corpus, WORDS[target], rng) for _ in range(50)] for rng in map(random.Random, (7, 7))
    )
    assert one == other
    assert len(set(one)) > 40


def test_an_error_that_is_not_ours_and_an_input_that_does_not_end_are_found(monkeypatch):
    def read(data):
        if data.count(b"<") % 3 == 1:
            raise KeyError("price")
        while data.count(b"<") % 3 == 2:
            pass

    monkeypatch.setitem(TARGETS, "xml", read)
    monkeypatch.setattr(fuzz, "DEADLINE", 0.05)
    found = {
        finding.words.split(":")[0] for finding in fuzz.fuzz("xml", seconds=60, seed=1, most=200, until=2).findings
    }
    assert found == {"KeyError", "TooLong"}


def test_memory_that_grows_is_found(monkeypatch):
    kept = []
    monkeypatch.setitem(TARGETS, "feeds", lambda data: kept.append(bytearray(1 << 20)))
    monkeypatch.setattr(fuzz, "GROWTH", 64 << 20)
    (finding,) = fuzz.fuzz("feeds", seconds=60, seed=1, most=2000).findings
    assert "memory grew" in finding.words
