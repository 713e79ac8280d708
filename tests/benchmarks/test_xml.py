"""The systems of the XML section agree with each other, so that their times can be compared."""

from benchmarks.xml.measure import MEASURED, document


def test_differential_all_systems_find_the_same_fragments(tmp_path):
    file = document(200_000, tmp_path)
    found = {system: run(file) for (system, kind), run in MEASURED.items() if kind == "twig"}
    assert set(found.values()) == {file.read_bytes().count(b"<item ")}
    assert document(200_000, tmp_path).read_bytes() == file.read_bytes()


def test_differential_tokenisers_see_the_same_tags(tmp_path):
    file = document(50_000, tmp_path)
    text = file.read_bytes()
    tags = text.count(b"<") - 1 + text.count(b"/>")  # without the declaration; an empty element has two
    assert MEASURED["lxml iterparse", "tokenise"](file) == tags
    assert MEASURED["expat", "tokenise"](file) > tags
    assert MEASURED["headrace", "tokenise"](file) > tags
