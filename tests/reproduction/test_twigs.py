"""The documents of [PQP] chapter 7 have the shapes and counts of its tables; fragments come in the order they should."""

from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from lxml import etree

from headrace.bench.auctions import closed_auctions, items
from headrace.progressive import PartitionStats
from reproduction import xml_documents as documents
from reproduction.pqp_checks import Steeper
from reproduction.twig_figures import XMARK, references
from reproduction.twig_runs import Fragments, LiteralTwigRPJ, Pair, match

SMALL = 0.02


def tree(document):
    return etree.fromstring(b"".join(document))


@pytest.mark.parametrize(
    ("make", "twig", "key", "value", "path"),
    [
        (lambda: items(20), "//item[id][name]", "id", "name", "//item[name]/@id"),
        (
            lambda: closed_auctions([3, 1, 3]),
            "//closed_auction[itemref/item][price]",
            "itemref/item",
            "price",
            "//closed_auction[price]/itemref/@item",
        ),
        (
            lambda: documents.x007(3, 1, SMALL),
            "//Connection[type][AtomicPart]",
            "type",
            "AtomicPart",
            "//Connection[AtomicPart]/@type",
        ),
        (
            lambda: documents.dblp(SMALL, 1),
            "//inproceedings[author][title]",
            "author",
            "title",
            "//inproceedings[title]/author/text()",
        ),
        (
            lambda: documents.sigmod_record(SMALL, 1),
            "//issue[volume][//article[title][//author]]",
            "//article//author",
            "//article/title",
            "//issue[volume]//article[title]//author/text()",
        ),
        (
            lambda: documents.swiss_prot(SMALL, 1),
            "//Entry[AC][Species]",
            "AC",
            "Species",
            "//Entry[Species]/AC/text()",
        ),
        (
            lambda: documents.experiments(np.array([5, 2]), 1),
            "//Expt[/Info/ID][AC]",
            "AC",
            "Info/ID",
            "//Expt[Info/ID]/AC/text()",
        ),
    ],
    ids=["items", "closed auctions", "X007", "DBLP", "SIGMOD Record", "Swiss-Prot", "experiments"],
)
def test_differential_fragments_are_what_lxml_finds(make, twig, key, value, path):
    found = match(make(), twig, key, value)
    assert found.rows["key"].to_pylist() == tree(make()).xpath(path) != []
    assert found.bytes == len(b"".join(make()))
    assert list(make()) == list(make())


def test_x007_has_the_parameters_of_its_table():
    root = tree(documents.x007(9, 1))
    assert len(root.findall("CompositePart")) == 50 and len(root.findall(".//Connection")) == 50 * 20 * 9
    assert len(root.findall(".//BaseAssembly")) == 3 ** (5 - 1)
    types = np.unique([connection.get("type") for connection in root.iter("Connection")], return_counts=True)[1]
    assert types.size == documents.TYPES and types.max() < 1.2 * types.min()


def test_tpch_has_the_elements_of_its_table(tmp_path):
    sizes = {"orders": (150_001, 5e6), "customer": (13_501, 503e3)}
    for table, (elements, size) in sizes.items():
        text = b"".join(documents.tpch(table, 0.01, tmp_path))
        root = etree.fromstring(text)
        assert sum(1 for _ in root.iter()) == elements and len(text) == pytest.approx(size, rel=0.05)
        assert root.find("T/CUSTKEY").text.isdigit()


def test_swiss_prot_has_accession_numbers_once_and_sometimes_several_an_entry():
    entries = tree(documents.swiss_prot(SMALL, 1)).findall("Entry")
    numbers = [[ac.text for ac in entry.findall("AC")] for entry in entries]
    assert len(entries) == 1000 and list(chain.from_iterable(numbers)) == [documents.accession(n) for n in range(1140)]
    assert {len(of_entry) for of_entry in numbers} >= {1, 2}


def test_papers_of_dblp_come_by_venue_unless_fields_are_mixed():
    def changes(mixed):
        keys = [key.split("/")[1] for key in tree(documents.dblp(SMALL, 1, mixed)).xpath("//@key")]
        return sum(a != b for a, b in pairwise(keys))

    assert changes(False) < documents.VENUES < changes(True)


def test_items_are_sold_once_unless_references_are_drawn_by_zipf():
    count, closed = XMARK[0.2]
    once, in_order, drawn = (references(how, count, closed, 1) for how in ("", "in order", "by Zipf"))
    assert len(set(once)) == len(once) == closed and sorted(once) == in_order != once
    assert len(drawn) == closed and np.bincount(drawn).max() > closed / 20


def test_fragments_take_turns_until_one_has_ended_or_end_together():
    left, right = (
        Fragments(pa.record_batch({"key": [f"{side}{n}" for n in range(size)], "value": [""] * size}), 0)
        for side, size in (("l", 6), ("r", 2))
    )
    turns, together = (Pair(left, right, how).streams() for how in (True, False))
    assert turns.rows["key"].to_pylist() == ["l0", "r0", "l1", "r1", "l2", "l3", "l4", "l5"]
    assert turns.side.tolist() == [0, 1, 0, 1, 0, 0, 0, 0]
    assert [together.rows["key"].to_pylist().index(key) for key in ("r0", "r1")] == [2, 6]


def test_the_literal_policy_flushes_the_partner_of_what_has_the_fewest_fragments_in_memory():
    stats = PartitionStats.empty(2)
    stats.arrived_tuples(0, np.array([0, 0, 1], np.int32))
    stats.arrived_tuples(1, np.array([1, 1, 1], np.int32))
    scores = LiteralTwigRPJ().scores(stats)
    assert scores.tolist() == [[0, 3 / 6], [2 / 6, 1 / 6]]


def test_steeper_compares_slopes():
    curves = {"c": [(0, 0.0), (10, 30.0), (20, 40.0)]}
    found = Steeper("c", (0, 10), (10, 20), at_least=2).look(curves)
    assert found.holds and found.found == "3 times: 3 and 1 for each percent"
    assert not Steeper("c", (0, 10), (10, 20), at_least=2, at_most=2.5).look(curves).holds
    with pytest.raises(LookupError, match="no point at 5"):
        Steeper("c", (0, 5), (10, 20), at_least=1).look(curves)
