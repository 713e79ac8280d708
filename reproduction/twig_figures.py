"""[PQP] §7.2.1 to §7.2.5: Twig'n Join beside Twig-RPJ and a random choice, on documents of our own making."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from headrace.bench.auctions import closed_auctions, items
from reproduction import xml_documents as documents
from reproduction.checks import Check, Faster
from reproduction.figure import Cell, Figure
from reproduction.pqp import zipf
from reproduction.pqp_checks import Alike, Steeper
from reproduction.twig_runs import SEEDS, Fragments, Pair, curves, match

ARRIVED = "% of the fragments that have arrived"
RIVALS = ("twig-rpj", "twig-rpj-literal")


def ahead(at_least: float, *rivals: str) -> tuple[Check, ...]:
    """Twig'n Join has so many times the results of each of these, when all has arrived."""
    return tuple(Faster("tnj", rival, at_least=at_least, at=100) for rival in rivals)


# -- 7.6: XMark ------------------------------------------------------------------------------------------------------------

#: Items and closed auctions by the factor lambda, Table 7.3.
XMARK = {
    0.2: (4_350, 1_950),
    0.4: (8_700, 3_900),
    0.6: (13_044, 5_845),
    0.8: (17_400, 7_800),
    1.0: (21_750, 9_750),
    2.0: (43_500, 19_500),
}
SKEW = 1.0  # the exponent of Zipf's law in the variant where some items are sold again and again
MARGIN = 1.1  # a large margin, which the text gives no number for


@cache
def _items(count: int) -> Fragments:
    return match(items(count), "//item[id][name]", "id", "name")


def _closed(references: Iterator[int], seed: int) -> Fragments:
    twig = "//closed_auction[itemref/item][price]"
    return match(closed_auctions(references, seed), twig, "itemref/item", "price")


def references(how: str, count: int, closed: int, seed: int) -> list[int]:
    """The items of closed auctions: each at most once in any order or in that of the items; or drawn by Zipf's law."""
    rng = np.random.default_rng([7, 6, seed])
    if how == "by Zipf":
        drawn = rng.choice(rng.permutation(count), closed, p=zipf(count, SKEW))
    else:
        drawn = rng.permutation(count)[:closed]
    return (np.sort(drawn) if how == "in order" else drawn).tolist()


def _auctions(factor: float, scale: float) -> list[Cell]:
    count, closed = (round(n * scale) for n in XMARK[factor])

    def make(how: str, seed: int, directory: Path) -> Pair:
        return Pair(_items(count), _closed(iter(references(how, count, closed, seed)), seed))

    names = {"results": "", "results in order": "in order", "results by Zipf": "by Zipf"}
    return curves({name: partial(make, how) for name, how in names.items()}, chunks=100)


def _xmark(letter: str, factor: float) -> Figure:
    expected = ahead(MARGIN, *RIVALS, "random")
    return Figure(
        f"7.6{letter}",
        f"XMark, lambda = {factor:g}",
        ARRIVED,
        partial(_auctions, factor),
        reports="In all cases Twig'n Join is ahead of Twig-RPJ and of Random by a large margin.",
        expected=expected,
        also={"results in order": expected, "results by Zipf": expected},
        differs=XMARK_DIFFERS,
        y="results",
        metric="results",
    )


# -- 7.7: X007 -------------------------------------------------------------------------------------------------------------


def _parts(scale: float) -> list[Cell]:
    def side(connections: int, seed: int) -> Fragments:
        return match(documents.x007(connections, seed, scale), "//Connection[type][AtomicPart]", "type", "AtomicPart")

    def make(connections: int, seed: int, directory: Path) -> Pair:
        return Pair(side(connections, 2 * seed), side(connections, 2 * seed + 1))

    numbers = {"results": 9, "results with 6": 6, "results with 3": 3}
    return curves({name: partial(make, number) for name, number in numbers.items()}, chunks=100)


# -- 7.8: TPC-H ------------------------------------------------------------------------------------------------------------

TPCH = 0.01  # the scale factor: 15,000 orders and 1,500 customers, Table 7.4


def _orders(scale: float) -> list[Cell]:
    def make(turns: bool, seed: int, directory: Path) -> Pair:
        orders, customers = (documents.tpch(table, TPCH * scale, directory) for table in ("orders", "customer"))
        return Pair(
            match(orders, "//T[CUSTKEY][O_ORDERSTATUS]", "CUSTKEY", "O_ORDERSTATUS"),
            match(customers, "//T[CUSTKEY][C_NAME]", "CUSTKEY", "C_NAME"),
            turns,
        )

    return curves({"results": partial(make, True), "results at equal pace": partial(make, False)})


# -- 7.9: DBLP with SIGMOD Record ------------------------------------------------------------------------------------------

FOURTHS = tuple(range(4, 101, 4))  # per cent: the text speaks of 16 and 24


def _papers(scale: float) -> list[Cell]:
    @cache
    def dblp(mixed: bool, seed: int) -> Fragments:
        twig = "//inproceedings[author][title]"
        return match(documents.dblp(scale, seed, mixed), twig, "author", "title")

    def make(mixed: bool, turns: bool, seed: int, directory: Path) -> Pair:
        twig = "//issue[volume][//article[title][//author]]"
        record = match(documents.sigmod_record(scale, seed), twig, "//article//author", "//article/title")
        return Pair(dblp(mixed, seed), record, turns)

    return curves(
        {
            "results": partial(make, False, True),
            "results at equal pace": partial(make, False, False),
            "results with fields mixed": partial(make, True, True),
        },
        FOURTHS,
        chunks=100,
    )


# -- 7.11: Swiss-Prot with experiments -------------------------------------------------------------------------------------

USED = (0.2, 0.4, 0.6, 0.8)  # mu


@cache
def _proteins(scale: float) -> Fragments:
    return match(documents.swiss_prot(scale, SEEDS[0]), "//Entry[AC][Species]", "AC", "Species")


def _with_experiments(used: float, scale: float) -> list[Cell]:
    def make(ordered: bool, seed: int, directory: Path) -> Pair:
        rng = np.random.default_rng([7, 11, seed])
        ranks = np.arange(round(documents.ACCESSIONS * scale))
        chosen = ranks[rng.random(ranks.size) < used]
        document = documents.experiments(chosen if ordered else rng.permutation(chosen), seed)
        return Pair(_proteins(scale), match(document, "//Expt[/Info/ID][AC]", "AC", "Info/ID"))

    return curves({"results": partial(make, True), "results in any order": partial(make, False)})


def _swiss_prot(letter: str, used: float) -> Figure:
    expected = ahead(1.02, *RIVALS)
    if used == USED[-1]:
        expected += tuple(Faster("random", rival, at_least=1.0, at=100) for rival in RIVALS)
    return Figure(
        f"7.11{letter}",
        f"Swiss-Prot with experiments, mu = {used:g}",
        ARRIVED,
        partial(_with_experiments, used),
        reports="Twig'n Join is ahead of Twig-RPJ"
        + ("; here the baseline Random is ahead of Twig-RPJ, too." if used == USED[-1] else "."),
        expected=expected,
        also={"results in any order": expected},
        differs=SWISS_PROT_DIFFERS,
        y="results",
        metric="results",
    )


COLD = """A partition without results has the lowest value that TnJ knows. With 1,024 partitions most have a fragment
    or two, which are flushed before anything could match them"""
XMARK_DIFFERS = f"""The text reads two files that were cut out of XMark's document, and so do we: items, and closed
    auctions. Its twig asks for `itemref/id`; XMark has the attribute `item` there, and so has ours. An item of XMark
    is in one auction, open or closed, so keys are one to one (known of its generator, not said in the text): a
    fragment that has found its match is of no more use, and R/N favours the partitions that are used up. A lead of
    TnJ over Twig-RPJ is not to be expected, and is not found, if auctions name items in any order, as on the curves;
    over Random there is one from lambda = 0.6 on. "In order" has the auctions in the order of their items, which is
    not XMark's: an auction comes before its item then, as there are more items than auctions, and both come by turns.
    So all results are those of auctions in memory, TnJ finds that side out, and is ahead. "By Zipf" has items that
    are sold again and again (exponent {SKEW:g}), which gives something to learn; yet TnJ is behind. {COLD}: with 16
    partitions instead (a quarter of lambda = 1, one seed) it has 1.09 times the results of Twig-RPJ, with 128 0.82
    times, with 1,024 0.76 times."""
SWISS_PROT_DIFFERS = f"""Neither file is to be had here. Ours have {documents.ENTRIES:,} entries with
    {documents.ACCESSIONS:,} accession numbers, by the counts of Table 7.5; a number is in an experiment with
    probability mu, once. So keys are one to one, as in Figure 7.6. The order of the experiments is not given. A
    program that walks through Swiss-Prot and makes an experiment with probability mu gives them in the order of
    Swiss-Prot; the curves have that, and there the text's claims are found. They need enough fragments in each of the
    1,024 partitions: with a tenth of the documents and mu = 0.2 TnJ has 0.70 times the results of Twig-RPJ, with
    three tenths 1.06 times.

    In any order TnJ is not ahead of `rpj`. The cause was looked for with mu = 0.2. In the order of Swiss-Prot an
    experiment always comes before its protein, since experiments run ahead: every result is one of an experiment in
    memory, R/N tells the sides apart from the beginning, and TnJ keeps experiments where Twig-RPJ, which sees as many
    of each arrive, keeps half and half. In any order both sides have the same R/N while both come, and a hash gives
    every partition the same: there is nothing to learn. When the experiments have ended, only they are of use, and
    Twig-RPJ sees that in the arrivals at once. TnJ goes by results, which are few for each partition and count what
    is used up: when all has come it has 2,770 experiments in memory, and Twig-RPJ 3,110. With 16 partitions, where
    results are not few, it has more of them than Twig-RPJ, 2,860 and 2,570, and yet 0.90 times the results: those
    that it has kept are used up. Forgetting old results does not help (`AmortisedRRPJ`: fewer still)."""
ALIKE = Alike(("tnj", "twig-rpj", "twig-rpj-literal", "random"), 0.05)
FIGURES = (
    *(_xmark(letter, factor) for letter, factor in zip("abcdef", XMARK, strict=True)),
    Figure(
        "7.7",
        "X007, 9 connections an atomic part",
        ARRIVED,
        _parts,
        reports="""All methods perform alike, since types are uniformly distributed; with 3 and 6 connections an
            atomic part it is the same.""",
        expected=(ALIKE,),
        also={"results with 6": (ALIKE,), "results with 3": (ALIKE,)},
        differs=f"""X007's own generator is not to be had here. Ours has the parameters of Table 7.2 and
            {documents.TYPES} types of connections, as OO7 has; a connection has one atomic part inside, the one that
            it leads to. The two documents are from different seeds. "Twig-RRPJ" in the text stands for Twig-RPJ.""",
        y="results",
        metric="results",
    ),
    Figure(
        "7.8",
        "TPC-H, orders with customers",
        ARRIVED,
        _orders,
        reports="Twig'n Join is ahead of Twig-RPJ significantly.",
        expected=ahead(MARGIN, *RIVALS),
        also={"results at equal pace": ahead(MARGIN, *RIVALS)},
        differs=f"""Rows by tpchgen-cli at a scale factor of {TPCH:g}, with the elements of Table 7.4: 150,001 and
            13,501. Real files have O_CUSTKEY and C_CUSTKEY; the text's twigs ask for CUSTKEY on both sides, so ours
            have that. The pace of the two is not given: the curves have them by turns, "at equal pace" so that both
            end together. There is something to learn, as a third of the customers has no orders. TnJ is far ahead of
            Twig-RPJ by the letter, and behind `rpj`, which knows from the arrivals that customers are the side to
            keep. {COLD}: with both at equal pace, when half has come, TnJ has 280 customers in memory and Twig-RPJ
            690. With 16 partitions instead of 1,024 TnJ is ahead by turns, 1.06 times, and at equal pace has 0.99
            times the results (one seed).""",
        y="results",
        metric="results",
    ),
    Figure(
        "7.9",
        "DBLP with SIGMOD Record",
        ARRIVED,
        _papers,
        reports="""Twig'n Join is ahead of Twig-RPJ from about 24% on. Results rise quickly between 16% and 24%, and
            linearly afterwards.""",
        expected=(
            *(Faster("tnj", rival, at_least=1.02, above=24) for rival in RIVALS),
            Steeper("tnj", (16, 24), (24, 100), at_least=1.2),
            Steeper("tnj", (24, 60), (60, 100), at_least=0.8, at_most=1.25),
        ),
        also={
            name: (
                *(Faster("tnj", rival, at_least=1.02, above=24) for rival in RIVALS),
                Steeper("tnj", (24, 60), (60, 100), at_least=0.8, at_most=1.25),
            )
            for name in ("results at equal pace", "results with fields mixed")
        },
        differs=f"""Neither file is to be had here. Ours have the elements and counts of the real ones:
            {documents.INPROCEEDINGS:,} papers of conferences and {documents.ARTICLES:,} of journals in DBLP, which
            the twig passes over, {documents.ISSUES} issues with {documents.RECORDED:,} articles in SIGMOD Record.
            Authors belong to one of {documents.FIELDS} fields and publish by Zipf's law; papers come by conference
            and journal, each of one field, as in the real file, and SIGMOD Record is of one field. What the text says
            of 16% and 24% is of the order in its own file: when papers of that field come. By turns SIGMOD Record has
            ended when 7% of all have come, before memory is full; from then on it is the side to keep, and every
            policy but Random sees that. "At equal pace" has both end together, and "with fields mixed" has the papers
            of DBLP in any order.""",
        y="results",
        metric="results",
    ),
    *(_swiss_prot(letter, used) for letter, used in zip("abcd", USED, strict=True)),
)
