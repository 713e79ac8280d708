"""The API reference has an entry for every public name, and names nothing that is not there."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
API = ROOT / "docs" / "api"
ENTRIES = re.compile(r"^```\{api\} ([\w.]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PUBLIC = [
    "headrace",
    "headrace.bench",
    "headrace.cost",
    "headrace.feeds",
    "headrace.predicates",
    "headrace.progressive",
    "headrace.progressive.rtree",
    "headrace.relation",
    "headrace.runlog",
    "headrace.sampling",
    "headrace.semistream",
    "headrace.shedding",
    "headrace.xml",
]
PAGES = sorted(API.glob("*.md"))
BLOCKS = [(page.name, *block) for page in PAGES for block in ENTRIES.findall(page.read_text())]
NAMES = [(page, module, name) for page, module, names in BLOCKS for name in names.split()]


def thing(module: str, name: str) -> object:
    return getattr(importlib.import_module(module), name)


def documented() -> dict[int, str]:
    """Objects that have an entry, by identity: some have a name in two packages, and an entry under one."""
    return {id(thing(module, name)): f"{module}.{name}" for _, module, name in NAMES}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_an_entry(module):
    there, listed = documented(), {f"{module}.{name}" for _, module, name in NAMES}
    names = [name for name in importlib.import_module(module).__all__ if not name.startswith("__")]
    missing = [name for name in names if id(thing(module, name)) not in there and f"{module}.{name}" not in listed]
    assert missing == [], "add a line to a page of docs/api/ for each"


def test_every_package_with_public_names_is_among_those_compared():
    """What has a page in docs/api is compared as a whole, and not only the names that somebody thought of."""
    packages = {module for _, module, _ in NAMES if hasattr(importlib.import_module(module), "__all__")}
    assert packages <= set(PUBLIC)


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_no_entry_names_what_does_not_exist(page):
    here = [(module, name) for where, module, name in NAMES if where == page]
    missing = [f"{module}.{name}" for module, name in here if not hasattr(importlib.import_module(module), name)]
    assert missing == []


def test_a_name_has_one_entry():
    names = [f"{module}.{name}" for _, module, name in NAMES]
    assert sorted(names) == sorted(set(names))


def test_names_that_guides_import_have_an_entry():
    there = documented()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    missing = []
    for page in pages:
        for code in PYTHON.findall(page.read_text()):
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace"):
                    found = [(alias.name, id(thing(node.module, alias.name))) for alias in node.names]
                    missing += [f"{page.name}: {node.module}.{name}" for name, what in found if what not in there]
    assert missing == []


def test_every_page_is_in_the_table_of_the_api():
    index = (API / "index.md").read_text()
    assert [page.name for page in PAGES if page.name != "index.md" and f"({page.name})" not in index] == []
