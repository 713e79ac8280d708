"""Options of the source `rss`: what is understood, and what is refused by name."""

import pytest

from headrace.errors import BadInput
from headrace.feeds.spark.options import FeedOptions, url_options

URL = "https://example.org/feed"


def test_several_feeds_of_one_option_of_two_or_of_both():
    comma = "https://example.org/?places=1,2"
    assert FeedOptions.of({"url": f" {comma} , {URL}"}).urls == (comma, URL)
    assert FeedOptions.of(url_options((comma, URL))).urls == (comma, URL)
    assert FeedOptions.of({"url": URL, **url_options((comma, URL))}).urls == (URL, comma)


def test_values_have_units_and_defaults():
    options = FeedOptions.of({"url": URL, "interval": "5m", "state": "here", "allow_private": "TRUE", "max_pulls": "7"})
    assert (options.interval, options.max_pulls, options.allow_private, options.allow_files) == (300.0, 7, True, False)
    assert options.state is not None and options.state.endswith("/here")
    plain = FeedOptions.of({"url": URL})
    assert (plain.interval, plain.state, plain.recorded) == (60.0, None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"intervall": "5m"}, "an option of 'rss'='intervall' .*did you mean 'interval'"),
        ({"path": URL}, "'path' is not supported; choose one of url, urls, state"),
        ({"interval": "often"}, "interval='often' is not a duration"),
        ({"allow_private": "yes"}, "allow_private='yes' is not supported; choose one of true, false"),
        ({"urls": URL}, "urls=.* is not a list of feeds"),
        ({"urls": "[1]"}, "urls=.* is not a list of feeds"),
        ({"max_pulls": "0"}, "max_pulls='0' is not a number of pulls"),
        ({"state": "s3://bucket/state"}, "state=.* is not a local directory"),
        ({"url": "file:///etc/passwd"}, "file:///etc/passwd.* is not pulled"),
        ({"url": "http://example.org:25/"}, "http://example.org:25/.* is not pulled: port 25"),
    ],
)
def test_what_is_refused_by_name(given, message):
    with pytest.raises(BadInput, match=message):
        FeedOptions.of({"url": URL, **given})


def test_a_source_without_a_feed_is_refused():
    with pytest.raises(BadInput, match="no feed to pull"):
        FeedOptions.of({"state": "here"})
