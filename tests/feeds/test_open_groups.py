"""Groups of windows that are open take memory for each group, and not for each item."""

from collections import Counter
from itertools import cycle, islice

import pytest

from headrace.errors import MemoryRefused
from headrace.feeds.sql import parse_query
from tests.support.feed_queries import items

QUERY = "SELECT a.author, count(*) AS n, sum(a.elev) AS s FROM rss('u') a GROUP BY a.author, window(a.seen, '1 day')"


def test_twenty_thousand_items_in_one_window_take_what_their_groups_do():
    operator, wanted, sums = parse_query(QUERY).operator("8MiB"), Counter(), Counter()
    names = cycle(f"author {i}" for i in range(23))
    for pull in range(200):
        rows = [{"author": name, "elev": float(i)} for i, name in enumerate(islice(names, 100))]
        wanted.update(row["author"] for row in rows)
        for row in rows:
            sums[row["author"]] += row["elev"]
        assert not list(operator.insert("u", items("u", *rows, minute=pull)))
    assert operator.budget.peak_by_part["groups"] < 256 << 10
    found = [row for out in operator.insert("u", items("u", {}, minute=1440)) for row in out.to_pylist()]
    assert {row["a.author"]: row["n"] for row in found} == wanted
    assert {row["a.author"]: row["s"] for row in found} == sums


def test_groups_that_do_not_fit_are_refused_with_what_to_do():
    operator = parse_query(QUERY).operator("256KiB")
    with pytest.raises(MemoryRefused, match=r"groups asked .* group by fewer values, or in shorter windows"):
        list(operator.insert("u", items("u", *({"author": f"author {i}"} for i in range(2000)))))
