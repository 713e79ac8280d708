"""Results of a query as feeds (RSS 2.0 with GeoRSS, Atom, JSON Feed) and as tables (Parquet, Delta)."""

from headrace.feeds.results.as_atom import atom
from headrace.feeds.results.as_json import json_feed
from headrace.feeds.results.as_rss import rss
from headrace.feeds.results.page import ResultPage
from headrace.feeds.results.tables import DeltaResults, ParquetResults

__all__ = ["DeltaResults", "ParquetResults", "ResultPage", "atom", "json_feed", "rss"]
