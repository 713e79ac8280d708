"""Random queries over random items give what DuckDB gives on the same tables."""

from collections import Counter
from datetime import timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.sql import parse_query
from tests.support.feed_queries import START, items

TEXTS = ["", "a", "A", "Ab c", " b ", "a%b", "a_b", "é\nx", "flood", "floods"]
MACROS = """
SET TimeZone = 'UTC';
CREATE MACRO dist(a, b, c, d) AS sqrt((a - c) * (a - c) + (b - d) * (b - d));
CREATE MACRO intersects(a, b) AS a.xmin <= b.xmax AND b.xmin <= a.xmax AND a.ymin <= b.ymax AND b.ymin <= a.ymax;
CREATE MACRO edit_distance(a, b) AS levenshtein(a, b);
"""


@pytest.fixture(scope="module")
def database():
    with duckdb.connect() as connection:
        connection.execute(MACROS)
        yield connection


def expected(database, text, tables):
    for url, table in tables.items():
        database.register(f"feed_{url}", table)
        text = text.replace(f"rss('{url}')", f"feed_{url}")
    return database.execute(text).fetchall()


def plain(value):
    """Values that compare across both: doubles rounded, moments as seconds, lists as tuples."""
    if isinstance(value, float):
        return round(value, 9)
    if isinstance(value, list):
        return tuple(value)
    return value.timestamp() if hasattr(value, "timestamp") else value


def counted(rows):
    return Counter(tuple(plain(value) for value in row) for row in rows)


def given_rows(text, pulls, once=False):
    plan = parse_query(text, once=once)
    op = plan.operator("4MiB")
    batches = [out for url, batch in pulls for out in op.insert(url, batch)]
    batches += list(op.finish()) if once or plan.grouping else []
    return [tuple(row.values()) for out in batches for row in out.select(plan.output.names).to_pylist()]


def check(database, text, pulls, once=False):
    tables = {url: pa.Table.from_batches([b for u, b in pulls if u == url], ITEM_SCHEMA) for url in ("u", "v", "w")}
    assert counted(given_rows(text, pulls, once)) == counted(expected(database, text, tables)), text


# -- items and queries by chance ---------------------------------------------------------------------------------------------

NO_SHRINKING = settings(deadline=None, phases=(Phase.explicit, Phase.generate))  # a smaller seed is no smaller query
SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = ["year", "month", "day", "hour", "minute"]


class Chance:
    """Makes items and parts of queries; everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def maybe(self, value):
        return None if self.number(0, 3) == 0 else value

    def row(self):
        x, y = self.number(-3, 3), self.number(-3, 3)
        box = {"xmin": x, "ymin": y, "xmax": x + self.number(0, 2), "ymax": y + self.number(0, 2)}
        return {
            "title": self.maybe(self.one(TEXTS)),
            "author": self.maybe(self.one(TEXTS)),
            "category": self.maybe([self.one("xy") for _ in range(self.number(0, 2))]),
            "pubDate": self.maybe(START + timedelta(minutes=self.number(-200, 200))),
            "geoLat": self.maybe(self.number(-6, 6) / 2),
            "geoLong": self.maybe(self.number(-6, 6) / 2),
            "elev": self.maybe(self.number(-6, 6) / 2),
            "box": self.maybe(box),
        }

    def pulls(self, urls="u", most=6):
        """Pulls of feeds, in any order, an hour or so apart."""
        minute, found = 0, []
        for _ in range(self.number(1, 5)):
            minute += self.number(1, 100)
            url = self.one(urls)
            found.append((url, items(url, *(self.row() for _ in range(self.number(0, most))), minute=minute)))
        return found

    def text(self, alias, depth=2):
        leaf = [f"{alias}.title", f"{alias}.author", f"{alias}.TITLE", "'" + self.one(TEXTS) + "'"]
        if not depth or self.number(0, 2) == 0:
            return self.one(leaf)
        x, y = self.text(alias, depth - 1), self.text(alias, depth - 1)
        i, j = self.number(1, 4), self.number(0, 3)
        return self.one(
            [
                f"lower({x})",
                f"UPPER({x})",
                f"trim({x})",
                f"substr({x}, {i}, {j})",
                f"left({x}, {j})",
                f"right({x}, {j})",
                f"replace({x}, 'a', 'bb')",
                f"({x} || {y})",
                f"concat({x}, {y})",
                f"coalesce({x}, {y})",
                f"nullif({x}, {y})",
                f"CASE WHEN {alias}.elev > 0 THEN {x} ELSE {y} END",
                f"CASE {x} WHEN {y} THEN 'same' WHEN 'a' THEN {y} END",
            ]
        )

    def value(self, alias, depth=2):
        leaf = [f"{alias}.geoLat", f"{alias}.geolong", f"{alias}.elev", "1", "-2", "0.5", f"{alias}.box.xmax"]
        if not depth or self.number(0, 2) == 0:
            return self.one(leaf)
        x, y = self.value(alias, depth - 1), self.value(alias, depth - 1)
        return self.one(
            [
                f"({x} {self.one('+-*')} {y})",
                f"({x} / {self.one(['2', '-4', '0.5'])})",
                f"abs({x} + 0.0)",
                f"floor({x} + 0.0)",
                f"length({self.text(alias, 1)})",
                f"{self.one(WIDTHS)}({alias}.pubDate)",
                f"extract(epoch FROM {alias}.pubDate)",
                f"length({alias}.category)",
                f"coalesce({x}, {y}, 7)",
                f"greatest({x}, {y}, 0)",
                f"nullif({x}, NULL)",
            ]
        )

    def moment(self, alias):
        return self.one(
            [
                f"{alias}.pubDate",
                f"date_trunc('hour', {alias}.pubDate)",
                f"date_trunc('week', {alias}.pubDate)",
                f"({alias}.pubDate - INTERVAL '90 minutes')",
                f"({alias}.pubDate + INTERVAL '1 day')",
                f"time_bucket(INTERVAL '15 minutes', {alias}.pubDate)",
                "TIMESTAMPTZ '2026-07-01 01:00:00'",
            ]
        )

    def condition(self, alias, depth=2):
        if depth and self.number(0, 1):
            x, y = self.condition(alias, depth - 1), self.condition(alias, depth - 1)
            return self.one([f"({x} AND {y})", f"({x} OR {y})", f"NOT ({x})", f"(({x}) IS NOT TRUE)"])
        op, no = self.one(["=", "<>", "<", "<=", ">", ">="]), self.one(["", "NOT "])
        text, other = self.text(alias, 1), self.text(alias)
        pattern = self.one(["'%a%'", "'a_'", "'%'", "''", "'a!%b' ESCAPE '!'", "'é%'"])
        return self.one(
            [
                f"{text} {op} {other}",
                f"{self.value(alias)} {op} {self.value(alias)}",
                f"{self.moment(alias)} {op} {self.moment(alias)}",
                f"{text} {no}LIKE {pattern}",
                f"{text} {no}ILIKE {pattern}",
                f"{text} {no}IN ('a', 'Ab c', NULL)",
                f"{text} {no}IN ('a', {other})",
                f"{self.value(alias, 1)} {no}IN (0, 1, 0.5)",
                f"{self.value(alias, 1)} {no}BETWEEN -1 AND 2",
                f"{text} IS {no}NULL",
                f"contains({text}, 'b')",
                f"contains({text}, {other})",
                f"starts_with({text}, 'a')",
                f"regexp_matches({text}, '^[ab]')",
                f"list_contains({alias}.category, 'x')",
                f"{alias}.author IS NOT DISTINCT FROM {alias}.title",
                f"({alias}.pubDate - {alias}.seen) {op} INTERVAL '1 hour'",
            ]
        )


# -- tests -------------------------------------------------------------------------------------------------------------------


@settings(NO_SHRINKING, max_examples=150)
@given(SEEDS)
def test_oracle_selections_have_three_valued_logic(database, seed):
    chance = Chance(seed)
    check(database, f"SELECT a.guid FROM rss('u') a WHERE {chance.condition('a')}", chance.pulls())


@settings(NO_SHRINKING, max_examples=150)
@given(SEEDS)
def test_oracle_values(database, seed):
    chance = Chance(seed)
    # CAST: DuckDB gives decimals and integers of several widths where there is one kind of number here.
    values = f"{chance.text('a')} AS t, CAST({chance.value('a')} AS double) AS n, {chance.moment('a')} AS m"
    check(database, f"SELECT {values}, ({chance.condition('a', 1)}) AS c FROM rss('u') a", chance.pulls())


LEADS = [
    "a.title = b.author",
    "lower(a.title) = lower(b.title) AND a.elev = b.elev",
    "a.geoLat = b.geoLong",
    "a.geoLat + 1 = length(b.title)",
    "date_trunc('hour', a.pubDate) = date_trunc('hour', b.pubDate)",
    "dist(a.geoLat, a.geoLong, b.geoLat, b.geoLong) < 2",
    "dist(a.geoLat, a.geoLong, b.geoLat, b.geoLong) <= 2",
    "3 > dist(b.geoLat, a.geoLong, a.geoLat, b.geoLong)",
    "intersects(a.box, b.box)",
    "edit_distance(a.title, b.title) <= 1",
    "abs(a.elev - b.elev) < 1",
    "a.category = b.category",
]


@settings(NO_SHRINKING, max_examples=150)
@given(SEEDS)
def test_oracle_joins(database, seed):
    chance = Chance(seed)
    asked = f"({chance.condition('a', 1)} OR {chance.condition('b', 0)}) AND a.guid <> b.guid"
    text = f"SELECT a.guid, b.guid, a.title FROM rss('u') a JOIN rss('v') b ON {chance.one(LEADS)} WHERE {asked}"
    check(database, text, chance.pulls("uv"))


@settings(NO_SHRINKING, max_examples=40)
@given(SEEDS)
def test_oracle_self_joins(database, seed):
    chance = Chance(seed)
    check(database, f"SELECT a.guid, b.guid FROM rss('u') a, rss('u') b WHERE {chance.one(LEADS)}", chance.pulls())


@settings(NO_SHRINKING, max_examples=60)
@given(SEEDS)
def test_oracle_joins_of_three_feeds(database, seed):
    chance = Chance(seed)
    first, second = chance.one(LEADS), chance.one(LEADS).replace("a.", "c.")
    text = f"SELECT a.guid, b.guid, c.guid, c.title FROM rss('u') a, rss('v') b, rss('w') c WHERE {first} AND {second}"
    check(database, text, chance.pulls("uvw", most=4))


@settings(NO_SHRINKING, max_examples=60)
@given(SEEDS)
def test_oracle_groups_in_windows(database, seed):
    chance = Chance(seed)
    key, having = chance.one(["a.title", "a.category", "length(a.title)"]), chance.one(["", " HAVING count(*) > 1"])
    aggregates = "count(*), count(a.author), CAST(sum(a.elev) AS double), avg(a.geoLat), min(a.title), max(a.pubDate)"
    window = "time_bucket(INTERVAL '1 hour', a.seen)"
    text = f"SELECT {key} AS k, {window} AS w, {aggregates} FROM rss('u') a GROUP BY {key}, {window}{having}"
    check(database, text, chance.pulls())


@settings(NO_SHRINKING, max_examples=60)
@given(SEEDS)
def test_oracle_snapshots(database, seed):
    chance = Chance(seed)
    pulls, down, limit = chance.pulls(), chance.one(["", " DESC"]), chance.number(0, 5)
    text = f"SELECT a.elev AS e, a.guid FROM rss('u') a ORDER BY e{down}, a.guid LIMIT {limit}"
    tables = {"u": pa.Table.from_batches([b for u, b in pulls if u == "u"], ITEM_SCHEMA)}
    assert given_rows(text, pulls, once=True) == expected(database, text, tables), seed
    check(database, "SELECT count(*), avg(a.elev), max(a.title) FROM rss('u') a", pulls, once=True)
