"""What queries over feeds say, refuse and keep: the grammar, mistakes with their places, plans, ids, and the memory budget."""

import math
import pickle
import re
from datetime import timedelta
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import BadInput, MemoryRefused
from headrace.feeds.items import ITEM_SCHEMA, RESULT_COLUMNS
from headrace.feeds.sql import BadQuery, parse_query
from headrace.feeds.sql.functions import AGGREGATES, FUNCTIONS, SPECIAL
from tests.support.feed_queries import START, items, run, values

EARTHQUAKES, HOLIDAYS = "http://earthquake.usgs.gov/recenteqsww/eqs7day-M2.5.xml", "http://localhost/myhols"
FIG_C1 = f"""
select a.link, a.title, b.link, b.title, dist(a.geoLat, a.geoLong, b.geoLat, b.geoLong)
from rss("{EARTHQUAKES}") a, rss("{HOLIDAYS}") b
where a.title = b.title and dist(a.geoLat, a.geoLong, b.geoLat, b.geoLong) < 5.6
"""


def point(lat, long, title="t", **more):
    return {"title": title, "geoLat": lat, "geoLong": long, **more}


# -- the printed query -------------------------------------------------------------------------------------------------------


def test_the_query_of_fig_c1_and_the_distance_of_the_screenshot():
    quakes = items(
        EARTHQUAKES, point(61.5684, -150.8446, "here", link="q"), point(0, 0, "here"), point(61, -150, "there")
    )
    holidays = items(HOLIDAYS, point(65, -155, "here", link="h"))
    (found,) = values(FIG_C1, (EARTHQUAKES, quakes), (HOLIDAYS, holidays))
    assert found[:4] == ("q", "here", "h", "here")
    assert f"{found[4]:.14f}" == "5.38917690561369"


def test_less_is_strict_and_at_most_is_not():
    pulls = [("u", items("u", point(0, 0))), ("v", items("v", point(0, 2), point(0, 2.5)))]
    query = "SELECT b.geoLong FROM rss('u') a, rss('v') b WHERE dist(a.geoLat, a.geoLong, b.geoLat, b.geoLong)"
    assert values(f"{query} < 2", *pulls) == []
    assert values(f"{query} <= 2", *pulls) == [(2.0,)]


# -- places, texts, boxes ----------------------------------------------------------------------------------------------------


def kilometres(a, b):
    """The angle between two unit vectors, another formula than that of the kernel."""
    (lat1, long1), (lat2, long2) = (np.radians(one) for one in (a, b))
    cosine = np.sin(lat1) * np.sin(lat2) + np.cos(lat1) * np.cos(lat2) * np.cos(long1 - long2)
    return 6371.0088 * math.acos(np.clip(cosine, -1, 1))


@pytest.mark.parametrize("km", [1, 120, 3000, 15_000])
def test_oracle_within_km_around_the_world(km):
    rng = np.random.default_rng(km)
    places = [(90.0, 0.0), (-90.0, 10.0), (0.0, 180.0), (0.0, -180.0), (0.5, 179.9), (0.5, -179.9)]
    places += [(float(a), float(b)) for a, b in zip(rng.uniform(-90, 90, 60), rng.uniform(-180, 180, 60), strict=True)]
    batch = items("u", *(point(lat, long, str(i)) for i, (lat, long) in enumerate(places)))
    query = f"SELECT a.title, b.title, geo_km(a, b) AS km FROM rss('u') a, rss('u') b WHERE within_km(a, b, {km})"
    found = values(query, ("u", batch))
    expected = {(str(i), str(j)) for i, a in enumerate(places) for j, b in enumerate(places) if kilometres(a, b) <= km}
    assert {(a, b) for a, b, _ in found} == expected and len(found) == len(expected)
    for a, b, distance in found:
        assert distance == pytest.approx(kilometres(places[int(a)], places[int(b)]), abs=1e-3)


def grams(text):
    return {text[i : i + 3] for i in range(len(text) - 2)} or ({text} if text else set())


def jaccard(a, b):
    x, y = grams(a), grams(b)
    return len(x & y) / len(x | y) if x | y else 1.0


@pytest.mark.parametrize("least", [0.2, 0.5, 1])
@pytest.mark.parametrize("op", [">", ">="])
def test_oracle_similarity(least, op):
    words = [
        "",
        "a",
        "ab",
        "abc",
        "abcd",
        "flood",
        "floods",
        "the flood",
        "the floods",
        "aaaa",
        "aaaaaaaa",
        "überflutung",
        "Überflutung",
    ]
    alike = "similarity(a.title, b.title)"
    query = f"SELECT a.title, b.title, {alike} FROM rss('u') a, rss('v') b WHERE {alike} {op} {least}"
    rows = [{"title": word} for word in [*words, None]]
    found = values(query, ("u", items("u", *rows)), ("v", items("v", *rows)))
    expected = [
        (a, b, jaccard(a, b))
        for a in words
        for b in words
        if jaccard(a, b) > least or (op == ">=" and jaccard(a, b) == least)
    ]
    assert sorted(found) == sorted(expected)


def test_a_text_can_contain_a_text_of_the_other_feed():
    alerts = items("u", point(0, 0, "Flood in Ulm"), point(0, 0, "Flood in Bonn"), point(0, 0, None))
    towns = items("v", point(0, 0, "Ulm"), point(0, 0, ""))
    query = (
        "SELECT a.title, b.title FROM rss('u') a, rss('v') b WHERE within_km(a, b, 1) AND contains(a.title, b.title)"
    )
    assert sorted(values(query, ("u", alerts), ("v", towns))) == [
        ("Flood in Bonn", ""),
        ("Flood in Ulm", ""),
        ("Flood in Ulm", "Ulm"),
    ]


def test_boxes_that_are_the_wrong_way_round_or_endless_match_nothing():
    def box(*sides):
        return {"box": dict(zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True))}

    odd = items(
        "u",
        box(1, 0, -1, 1),
        box(math.nan, 0, 1, 1),
        box(-math.inf, -1, math.inf, 1),
        box(0, 0, None, 1),
        box(0, 0, 1, 1),
    )
    query = "SELECT a.guid FROM rss('u') a, rss('v') b WHERE intersects(a, b)"
    assert values(query, ("u", odd), ("v", items("v", box(1, 1, 1, 1)))) == [("0/4",)]
    assert values("SELECT a.guid FROM rss('u') a WHERE intersects(a.box, box(0, 0, 1, 1))", ("u", odd.slice(3))) == [
        ("0/4",)
    ]


def test_what_cannot_be_computed_is_null():
    row = items("u", {"title": "x1", "geoLat": 0.0, "elev": -1.0, "author": " 7 "})
    query = """SELECT a.elev / a.geoLat, a.elev % a.geoLat, sqrt(a.elev), CAST(a.title AS double), CAST(a.author AS bigint),
               9000000000000000 * 9000000000000000, CAST(a.elev * 1e300 AS bigint) FROM rss('u') a"""
    assert values(query, ("u", row)) == [(None, None, None, None, 7, None, None)]


# -- results -----------------------------------------------------------------------------------------------------------------


def test_results_have_ids_that_are_the_same_everywhere_and_places():
    plan = parse_query(FIG_C1)
    batches = [(EARTHQUAKES, items(EARTHQUAKES, point(1, 2, "x"))), (HOLIDAYS, items(HOLIDAYS, point(1.5, 2, "x")))]
    found = []
    for order in (batches, batches[::-1]):
        op = pickle.loads(pickle.dumps(plan)).operator()
        found += [out for url, batch in order for out in op.insert(url, batch)]
    first, second = found
    assert first.equals(second) and first.schema == pa.schema([*plan.output, *RESULT_COLUMNS])
    assert first.column("_id")[0].as_py().hex() == "95d594486bd75710a28b1d093c4744fc"
    assert [(one["alias"], one["title"], one["lat"]) for one in first.column("_places")[0].as_py()] == [
        ("a", "x", 1),
        ("b", "x", 1.5),
    ]


def test_an_item_that_says_the_same_again_gives_nothing_and_one_that_changed_does():
    op = parse_query("SELECT a.title FROM rss('u') a").operator()
    said = [
        row
        for title in ("x", "y", "x")
        for out in op.insert("u", items("u", {"guid": "1", "title": title}))
        for row in out.to_pylist()
    ]
    assert [row["a.title"] for row in said] == ["x", "y"] and said[0]["_id"] != said[1]["_id"]
    assert (op.stats.items, op.stats.repeated, op.stats.results) == (3, 1, 2)


def test_many_items_are_known_again():
    op = parse_query("SELECT a.guid FROM rss('u') a").operator()
    rows = [{"title": str(i)} for i in range(3000)]
    pulls = [items("u", *rows, minute=minute) for minute in (1, 2, 3)]
    assert sum(out.num_rows for batch in (*pulls, *pulls) for out in op.insert("u", batch)) == 9000


def test_contract_the_memory_budget_holds_and_nothing_is_lost_on_disk():
    """Several times what fits; every insertion gives its results at once, whatever lies on disk."""
    rng = np.random.default_rng(0)
    text = "x" * 2000
    query = "SELECT a.guid, b.guid FROM rss('u') a, rss('v') b WHERE a.title = b.title"
    op = parse_query(query).operator("1MiB")
    had = {"u": [], "v": []}
    for pull in range(16):
        url = "uv"[pull % 2]
        keys = rng.integers(0, 400, 60).tolist()
        batch = items(
            url, *({"title": f"{key} {text}", "guid": f"{pull}/{i}"} for i, key in enumerate(keys)), minute=pull
        )
        found = sum(out.num_rows for out in op.insert(url, batch))
        other = had["v" if url == "u" else "u"]
        assert found == sum(other.count(key) for key in keys)
        had[url] += keys
        assert op.memory <= 1 << 20
    assert op.spilled > 0 and all(join.memory_peak <= join.memory_limit for join in op.joins)


def test_too_little_memory_is_refused_with_the_least():
    with pytest.raises(MemoryRefused, match="too small for two streams"):
        parse_query("SELECT a.guid FROM rss('u') a, rss('v') b WHERE a.title = b.title").operator("100KiB")


def test_items_must_be_items_of_the_query():
    op = parse_query("SELECT a.guid FROM rss('u') a").operator()
    with pytest.raises(BadInput, match="does not read 'v'"):
        op.insert("v", items("v"))
    with pytest.raises(BadInput, match="ITEM_SCHEMA"):
        op.insert("u", pa.record_batch({"title": ["x"]}))


# -- windows -----------------------------------------------------------------------------------------------------------------


def test_windows_end_when_later_items_are_seen_and_late_items_are_counted():
    op = parse_query("SELECT window(a.pubDate, '1 hour') AS w, count(*) AS n FROM rss('u') a GROUP BY w").operator()

    def seen(minute, *published):
        batch = items(
            "u", *({"pubDate": None if p is None else START + timedelta(minutes=p)} for p in published), minute=minute
        )
        return [
            ((row["w"] - START) // timedelta(hours=1), row["n"])
            for out in op.insert("u", batch)
            for row in out.to_pylist()
        ]

    assert seen(10, 1, 2) == []
    assert seen(61, 59, 61) == [(0, 3)]  # the item of minute 59 came in time: nothing later had been seen
    assert seen(62, 58, None) == []
    assert op.stats.late == 2
    assert seen(125) == [] and seen(126, 120) == [(1, 1)]


def test_a_window_over_a_join_waits_for_partners():
    text = "SELECT window(a.seen, '1 hour') AS w, count(*) AS n FROM rss('u') a, rss('v') b WHERE a.title = b.title GROUP BY w"
    with pytest.raises(BadQuery, match="WITHIN '1 day'"):
        parse_query(text)
    op = parse_query(f"{text} WITHIN '30 minutes'").operator()
    steps = [("u", 50), ("v", 70), ("v", 85), ("u", 91)]
    found = [
        [row["n"] for out in op.insert(url, items(url, {"title": "x"}, minute=at)) for row in out.to_pylist()]
        for url, at in steps
    ]
    assert found == [[], [], [], [1]]  # 50 meets 70, and not 85; the window ends at 60, and is kept open until 90


# -- what is refused, and where ----------------------------------------------------------------------------------------------

A = "FROM rss('u') a"
AB = "FROM rss('u') a, rss('v') b"
MISTAKES = [
    (f"SELECT a.tilte {A}", "tilte", "no column 'tilte'; did you mean 'title'?"),
    (f"SELECT x.title {A}", "x", "no alias 'x'; FROM has a"),
    (f"SELECT lowr(a.title) {A}", "lowr", "no function lowr(); did you mean 'lower'?"),
    (f"SELECT a.title {A} WHERE a.title > 5", "a", "'>' compares a.title, a text, with a whole number"),
    (f"SELECT a.title {A} WHERE a.title", "a", "a condition takes true or false"),
    (f"SELECT a.title + 1 {A}", "a", "'+' takes numbers"),
    (f"SELECT lower(a.elev) {A}", "a", "lower() takes a text"),
    (f"SELECT a.title {A} WHERE a.pubDate > 'soon'", "'soon'", "'soon' is not a moment"),
    (f"SELECT a.title {A} WHERE a.category = 'x'", "a", "use contains(a.category"),
    (f"SELECT title {AB} WHERE a.title = b.title", "title", "could be of any feed; write one of a.title, b.title"),
    (f"SELECT a.title {AB}", "rss", "nothing connects b with a"),
    (f"SELECT a.title {AB} WHERE a.elev < b.elev", "rss", "cannot find the pairs"),
    (f"SELECT a.title {AB} WHERE a.title = b.title OR a.link = b.link", "rss", "cannot find the pairs"),
    (f"SELECT a.title {A} ORDER BY a.title", "a", "runs for ever"),
    (f"SELECT a.title {A} LIMIT 5", "5", "LIMIT would end"),
    (f"SELECT count(*) {A}", "count", "without a window"),
    (f"SELECT a.title, count(*) {A} GROUP BY window(a.seen, '1 hour')", "a", "neither in GROUP BY"),
    (f"SELECT a.title {A} WHERE count(*) > 1", "count", "allowed in SELECT"),
    (f"SELECT count(DISTINCT a.title) {A} GROUP BY window(a.seen, '1 hour')", "count", "DISTINCT"),
    (f"SELECT DISTINCT a.title {A}", None, "DISTINCT is not part of this SQL"),
    (f"SELECT a.title {A} LEFT JOIN rss('v') b ON a.title = b.title", "rss", "LEFT JOIN is not part of this SQL"),
    (f"SELECT now() {A}", "now", "use a.seen"),
    (f"SELECT a.title {A} WHERE a.seen > current_timestamp", None, "use a.seen"),
    (f"SELECT random() {A}", None, "not part of this SQL|differs from run to run"),
    (f"SELECT (SELECT 1) {A}", None, "a query inside a query"),
    (f"SELECT sum(a.elev) OVER () {A}", None, "OVER"),
    (f"SELECT ? {A}", None, "no parameters"),
    (f"SELECT regexp_matches(a.title, '(') {A}", "'('", "not a regular expression"),
    (f"SELECT a.title {A} WHERE a.title LIKE a.author", "a", "takes a literal here"),
    (f"SELECT a.title AS x, a.link AS x {A}", "x", "two columns are called 'x'"),
    (f"SELECT a.title AS _id {A}", None, "begins with _"),
    ("SELECT a.title FROM feeds a", "feeds", "'feeds' is not a feed"),
    ("SELECT a.title FROM atom('u') a", "atom", "atom() is not a source"),
    ("SELECT a.title FROM rss(u) a", "u", "takes an address in quotes"),
    ("SELECT a.title FROM rss('u') a, rss('v') a WHERE 1 = 1", "a", "the alias 'a' is given twice"),
    ("SELECT a.title FORM rss('u') a", "rss", "is 'FORM' meant to be FROM?"),
    (f"SELECT a.title {A} WHERE", "WHERE", "something is missing"),
    ("SELECT a.title FROM rss('u) a", None, "a quote is not closed"),
    (f"SELECT a.title {A} WITHIN 'long'", "'long'", "is not a duration"),
    (f"SELECT a.title {A} WHERE a.seen - a.pubDate > INTERVAL '1 month'", None, "no fixed length"),
    ("", None, "there is no query"),
    ("DELETE FROM x", "DELETE", "only SELECT is run here"),
    (f"SELECT a.title {A}; DROP TABLE x", None, "one query at a time"),
    (f"SELECT a.title {A} UNION SELECT a.link {A}", None, "only SELECT is run here, and this is a UNION"),
    ("SELECT 1", None, "there is no FROM"),
    ("SELECT a.title FROM rss('u') a WHERE " + "(" * 5000 + "1 = 1" + ")" * 5000, None, "nested too deeply"),
    ("SELECT a.title " + " " * 100_000 + A, None, "characters"),
]


@pytest.mark.parametrize(
    ("text", "at", "said"), MISTAKES, ids=lambda value: value[:40] if isinstance(value, str) else ""
)
def test_mistakes_are_named_with_their_places(text, at, said):
    with pytest.raises(BadQuery) as caught:
        parse_query(text)
    error = caught.value
    assert any(part in error.reason for part in said.split("|")), error.reason
    if at is not None:
        assert text[error.at : error.at + error.length] == at
        assert str(error).split("\n")[-1].index("^") == error.column + 1
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.line == error.line


def test_a_mistake_shows_its_line_with_a_caret():
    with pytest.raises(BadQuery) as caught:
        parse_query("SELECT a.title\nFROM rss('u') a\nWHERE a.tilte = 'x'")
    assert str(caught.value) == (
        "line 3, column 9: a feed has no column 'tilte'; did you mean 'title'?\n  WHERE a.tilte = 'x'\n          ^^^^^"
    )


@pytest.mark.parametrize(
    "evil",
    [
        "'; DROP TABLE items; --",
        "' OR '1'='1",
        '"; import os; os.system("true")',
        "__import__('os').system('true')",
        "\\'; SELECT 1 --",
        "x' UNION SELECT guid FROM rss('v') b --",
    ],
)
def test_texts_are_values_and_nothing_else(evil):
    quoted = evil.replace("'", "''")
    batch = items("u", {"title": evil}, {"title": "x"})
    assert values(f"SELECT a.title FROM rss('u') a WHERE a.title = '{quoted}'", ("u", batch)) == [(evil,)]
    assert values(f"SELECT a.title FROM rss('u') a WHERE contains(a.title, '{quoted}')", ("u", batch)) == [(evil,)]
    assert parse_query(f"SELECT a.title FROM rss('{quoted}') a").sources[0].url == evil


# -- forms that mean the same ------------------------------------------------------------------------------------------------

PULLS = [("u", items("u", {"title": "x", "category": ["k"], "elev": 2.0})), ("v", items("v", {"title": "x"}))]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.title FROM rss('u') a, rss('v') b WHERE a.title = b.title",
        "select A.TITLE from RSS('u') AS a join rss('v') AS b on b.title = a.title;",
        'Select "a"."title" From rss("u") a Inner Join rss("v") b Using (title)',
        "SELECT a.title FROM rss('u') a CROSS JOIN rss('v') b WHERE (a.title = b.title AND TRUE) -- the rest\n",
        "SELECT title FROM rss('u') WHERE elev BETWEEN 1 AND 3 AND NOT title IS NULL",
        "SELECT item.title FROM rss('u') WHERE 'k' IN (array_to_string(category, ','))",
    ],
)
def test_forms_of_the_same_query(text):
    pulls = PULLS if "rss('v')" in text or 'rss("v")' in text else PULLS[:1]
    assert values(text, *pulls) == [("x",)]


def test_names_of_columns():
    columns = (
        "a.title, A.LINK, dist(a.elev, 1, 2, 3), dist(1, a.elev, 2, 3), a.elev + 1, lower(a.title) AS low, a.box.xmin"
    )
    plan = parse_query(f"SELECT {columns} FROM rss('u') a")
    assert plan.output.names == ["a.title", "a.link", "dist()", "dist()_2", "a.elev + 1", "low", "a.box.xmin"]
    assert parse_query("SELECT * FROM rss('u') a").output.names == [f"a.{name}" for name in ITEM_SCHEMA.names]


def test_the_plan_is_drawn_as_a_tree():
    text = """EXPLAIN SELECT a.title, c.link FROM rss('u') a, rss('v') b, rss('w') c
        WHERE a.title = b.title AND dist(b.geoLat, b.geoLong, c.geoLat, c.geoLong) < 2 AND a.elev > 0 AND a.link <> c.link"""
    plan = parse_query(text)
    assert plan.explained
    assert plan.explain() == (
        "result: a.title, c.link\n"
        "└─ join: DIST(b.geoLat, b.geoLong, c.geoLat, c.geoLong) < 2; asked of each pair: "
        "DIST(b.geoLat, b.geoLong, c.geoLat, c.geoLong) < 2 AND a.link <> c.link\n"
        "   ├─ join: a.title = b.title\n"
        "   │  ├─ select: a.elev > 0\n"
        "   │  │  └─ rss('u') a\n"
        "   │  └─ rss('v') b\n"
        "   └─ rss('w') c"
    )


def test_only_the_columns_that_are_needed_are_carried():
    plan = parse_query(
        "SELECT a.link FROM rss('u') a, rss('v') b WHERE a.title = b.title AND a.author <> b.description"
    )
    assert "a__description" not in plan.scans[0].schema.names and "a__author" in plan.scans[0].schema.names
    assert "b__description" in plan.scans[1].schema.names
    assert {"a__author", "b__description"} & set(plan.stages[0].carried) == set()


def test_the_similar_word_is_not_offered_where_nothing_is_near():
    with pytest.raises(BadQuery) as caught:
        parse_query("SELECT a.zzz FROM rss('u') a")
    assert "did you mean" not in str(caught.value) and "guid, link, title" in str(caught.value)
    assert SequenceMatcher(None, "zzz", "title").ratio() < 0.6


def test_a_snapshot_sorts_groups():
    batch = items("u", *({"title": t, "elev": e} for t, e in (("x", 1.0), ("y", 5.0), ("x", 2.0), ("z", None))))
    query = "SELECT a.title AS t, count(*) AS n, sum(a.elev) AS s FROM rss('u') a GROUP BY 1 ORDER BY count(*) DESC, s LIMIT 2"
    assert run(query, ("u", batch), once=True) == [{"t": "x", "n": 2, "s": 3.0}, {"t": "y", "n": 1, "s": 5.0}]


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "feed-sql.md"


@pytest.mark.parametrize("query", re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
def test_queries_of_the_reference_can_be_run(query):
    assert parse_query(query).operator() is not None


def test_every_function_is_in_the_reference():
    text = PAGE.read_text()
    assert [name for name in (*FUNCTIONS, *SPECIAL, *AGGREGATES) if not re.search(rf"\b{name}\b", text)] == [
        "array_length",
        "date_part",
    ]
