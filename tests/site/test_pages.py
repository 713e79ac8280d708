"""What the site makes of pages and docstrings when it reads them."""

import importlib
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).parent.parent.parent / "docs" / "site"


@pytest.fixture(scope="module")
def load():
    """Modules that lie beside conf.py, as Sphinx imports them."""
    names = [path.stem for path in SITE.glob("*.py")]
    sys.path.insert(0, str(SITE))
    yield importlib.import_module
    sys.path.remove(str(SITE))
    for name in names:
        sys.modules.pop(name, None)


def rendered(load, text: str) -> list[str]:
    lines = text.splitlines()
    load("docstrings").process(None, "class", "Join", None, None, lines)
    return lines


def test_an_indented_drawing_is_a_literal_block(load):
    lines = rendered(load, "Joins.\n\n    left --> |memory| [MESH]\n      +--> disk\n\nMore.")
    drawing = ["    left --> |memory| [MESH]", "      +--> disk"]
    assert lines == ["Joins.", "", ".. code-block:: text", "", *drawing, "", "More."]


def test_descriptions_of_parameters_and_lists_are_no_drawings(load):
    text = (
        "Joins.\n\n- one\n  goes on\n\nParameters\n----------\non\n    The key.\n\n    In full.\n\nArgs:\n    on: key\n"
    )
    assert rendered(load, text) == text.splitlines()


def test_papers_sizes_and_names_in_sentences(load):
    assert rendered(load, "See WaitingJoin. |S| of [MESH] §3, as `a|b`; hr.load loads.") == [
        r"See `WaitingJoin`. \|S\| of :doc:`[MESH] </reproduction/index>` §3, as `a|b`; `hr.load` loads."
    ]
    example = ">>> hr.load | 1\n[MESH]"
    assert rendered(load, example) == example.splitlines()


def test_deviations_are_a_section(load):
    assert rendered(load, "Deviations: none.") == ["", "Deviations", "----------", "None."]
    assert rendered(load, "Deviations from Table 3: some.")[-1] == "From Table 3: some."


def test_a_paragraph_after_the_parameters_is_none_of_them(load):
    parameters = "Parameters\n----------\non\n    The key.\n\nhow, memory\n    The rest.\n"
    example = "\nExample\n-------\n>>> 1\n1"
    said = "\nIt counts tuples, and\nnot pages.\n"
    lines = rendered(load, f"Joins.\n\n{parameters}{said}{example}")
    noted = "\nNotes\n-----\nIt counts tuples, and\nnot pages.\n"
    assert lines == f"Joins.\n\n{parameters}{noted}{example}".splitlines()
    assert rendered(load, parameters + example) == (parameters + example).splitlines()


def test_a_guide_that_a_docstring_names_is_a_link(load):
    assert rendered(load, "See `docs/reference/xml.md`.") == ["See :doc:`/reference/xml`."]


@pytest.fixture
def documents(load, tmp_path, monkeypatch):
    pages = load("pages")
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    (tmp_path / "how-to").mkdir()
    for name in ("how-to/create", "how-to/join", "how-to/a-new-one", "index", "how-to/index"):
        (tmp_path / f"{name}.md").write_text(f"# The page {name}\n")
    return tmp_path


def test_a_new_page_is_in_the_navigation_without_an_edit(load, documents):
    text = load("pages").with_navigation("how-to/index", "# How-to\n\n[join](join.md), [create](create.md#x)\n")
    assert "- [The page how-to/a-new-one](/how-to/a-new-one.md)" in text
    assert "/how-to/join\n/how-to/create\n/how-to/a-new-one\n```" in text
    assert "troubleshooting" not in text  # it is not there
    (documents / "troubleshooting.md").write_text("# Troubleshooting\n")
    assert "/troubleshooting\n```" in load("pages").with_navigation("how-to/index", "# How-to\n")


def test_a_page_that_no_part_has_is_at_the_end_of_the_bar(load, documents):
    (documents / "glossary.md").write_text("# Glossary\n")
    assert load("pages").with_navigation("index", "# Front\n").endswith("Changelog </changelog>\n/glossary\n```\n")


def test_entries_have_the_kind_of_what_they_name(load):
    made = load("pages").with_entries("```{api} headrace.shedding\nShedder\nstrategy_for\nALL\n```\n")
    assert ".. autoclass:: headrace.shedding.Shedder" in made
    assert ".. autofunction:: headrace.shedding.strategy_for" in made
    assert ".. py:data:: headrace.shedding.ALL\n\n   The cut that keeps everything" in made
    assert ".. autoexception:: headrace.BadInput" in load("pages").with_entries("```{api} headrace\nBadInput\n```\n")


def test_a_public_constant_without_a_comment_is_refused(load, monkeypatch):
    monkeypatch.setattr("headrace.shedding.NEW", 3, raising=False)
    with pytest.raises(ValueError, match=r"headrace\.shedding\.NEW is public and has no comment"):
        load("pages").with_entries("```{api} headrace.shedding\nNEW\n```\n")


def test_names_as_sentences_write_them(load):
    target_of = load("names").target_of
    assert target_of("hr.load(df, path)") == "headrace.load"
    assert target_of("MeshJoin") == "headrace.semistream.MeshJoin"
    assert target_of("hr.Relation.create(path)") == "headrace.Relation.create"
    assert target_of("load") is None
    assert target_of("memory") is None


def test_code_in_a_docstring_stays_as_it_is(load):
    text = "Usable as ``df.transform(hr.enrich, rel)``, see `a | b`."
    assert rendered(load, text) == [text]


def test_links_to_documents_outside_of_the_site_stay_inside_it(load):
    inward = load("pages").inward
    assert inward("upgrading", "[log](../CHANGELOG.md#fixed)") == "[log](/changelog.md)"
    assert (
        inward("how-to/join-a-stream", "[a](../../README.md), [b](../concepts.md#x)")
        == "[a](/index.md), [b](../concepts.md#x)"
    )
    assert inward("design", "[how](../CONTRIBUTING.md) to") == "how to"
