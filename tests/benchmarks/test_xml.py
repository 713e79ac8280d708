"""The systems of the XML section agree with each other, so that their times can be compared."""

import pytest

from benchmarks.xml import OURS, SPARK
from benchmarks.xml.measure import MEASURED, SMALL_CHUNK, document
from benchmarks.xml.plan import XmlPlan
from benchmarks.xml.report import targets
from benchmarks.xml.rivals import join_spark, twig_spark

SIZE = 200_000


def found_by_all(kind, file):
    return {system: run(file) for (system, of_kind), run in MEASURED.items() if of_kind == kind and system != SPARK}


def test_differential_all_systems_find_the_same_fragments(tmp_path):
    file = document(SIZE, tmp_path)
    found = found_by_all("twig", file)
    assert set(found.values()) == {file.read_bytes().count(b"<item ")} and "saxonche" in found
    assert document(SIZE, tmp_path).read_bytes() == file.read_bytes()


def test_differential_all_systems_join_the_same_pairs(tmp_path):
    file = document(SIZE, tmp_path)
    found = found_by_all("join", file)
    assert set(found.values()) == {file.read_bytes().count(b"<closed_auction>")} and len(found) == 3


def test_differential_spark_finds_the_same(spark, tmp_path):
    file = document(SIZE, tmp_path)
    assert twig_spark(spark, file) == MEASURED[OURS, "twig"](file)
    assert join_spark(spark, file) == MEASURED[OURS, "join"](file)


def test_the_first_fragment_comes_with_the_chunk_of_its_end_tag(tmp_path):
    file = document(SIZE, tmp_path)
    due = file.read_bytes().index(b"</item>") + len(b"</item>")
    assert 0 <= MEASURED[OURS, "first"](file) - due < SMALL_CHUNK
    assert MEASURED["saxonche", "first"](file) == file.stat().st_size > 10 * due


def test_differential_tokenisers_see_the_same_tags(tmp_path):
    file = document(50_000, tmp_path)
    text = file.read_bytes()
    tags = text.count(b"<") - 1 + text.count(b"/>")  # without the declaration; an empty element has two
    assert MEASURED["lxml iterparse", "tokenise"](file) == tags
    assert MEASURED["expat", "tokenise"](file) > tags
    assert MEASURED[OURS, "tokenise"](file) > tags


def test_every_document_is_measured_with_all_systems():
    small, large = (
        {(one.system, one.kind) for one in XmlPlan((SIZE, 2 * SIZE)).all() if one.size == n * SIZE} for n in (1, 2)
    )
    assert small == set(MEASURED) and small - large == {one for one in MEASURED if one[1] == "probes"}


def cell(system, kind, results, **others):
    return {
        "system": system,
        "kind": kind,
        "results": results,
        "size": 1,
        "bytes": 1,
        "cpu": 1.0,
        "growth": 1,
        **others,
    }


@pytest.mark.parametrize(
    ("cells", "met"),
    [
        ([cell("rop", "probes", 105), cell("apriori", "probes", 100)], [True]),
        ([cell("rop", "probes", 106), cell("apriori", "probes", 100)], [False]),
        ([cell(OURS, "first", 8192, due=8000)], [True]),
        ([cell(OURS, "first", 16384, due=8000)], [False]),
        ([cell(OURS, "join", 5), cell("saxonche", "join", 5)], [True, True]),
        ([cell(OURS, "join", 5, growth=64 << 20), cell("saxonche", "join", 6)], [False, False]),
    ],
    ids=["probes", "too many probes", "first", "late", "join", "large join and other pairs"],
)
def test_targets_of_probes_first_fragments_and_joins(cells, met):
    assert [target.passed for target in targets(cells)] == met
