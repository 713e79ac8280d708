"""What the site adds to the Markdown pages when it reads them: navigation, the API's entries, the changelog.

The pages stay plain Markdown. A folder's index.md orders its pages by linking to them; a page that it does not link to comes
after them, in the navigation and in a list at its end. So a new file is found without an edit.
"""

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

from names import BLOCK
from sphinx.pycode import ModuleAnalyzer

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent

#: The bar above all pages. Pages of docs/ that are in no list follow at its end.
BAR = {
    "how-to/index": "How-to",
    "concepts": "Concepts",
    "reference/index": "Reference",
    "api/index": "API",
    "reproduction/index": "Papers and figures",
    "benchmarks": "Benchmarks",
    "design": "Design",
    "changelog": "Changelog",
}
#: Pages of docs/ itself that belong to a part of the bar, where they exist.
BELONGS = {
    "how-to/index": ["troubleshooting", "upgrading"],
    "concepts": ["samples-and-windows", "comparison"],
}
#: Pages that stand alone, without a list of neighbours.
WITHOUT_SIDEBAR = ["index", "benchmarks", "changelog", "design"]

LINK = re.compile(r"\]\(([\w./-]+)\.md(?:#[^)]*)?\)")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def toctree(entries):
    """A hidden list of pages: {page: title, or None for its own}."""
    lines = [f"{title} </{page}>" if title else f"/{page}" for page, title in entries.items()]
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(lines) + "\n```\n"


def pages_in(folder):
    """The pages of a folder of docs/, without its index, as names such as how-to/join-a-stream."""
    names = (path.relative_to(DOCS).with_suffix("").as_posix() for path in sorted((DOCS / folder).glob("*.md")))
    return [name for name in names if Path(name).name != "index"]


def existing(names):
    """Those that there are."""
    return [name for name in names if (DOCS / f"{name}.md").exists()]


def ordered(folder, text):
    """The pages of a folder in the order in which its index links to them, and those that it does not link to."""
    there = pages_in(folder)
    linked = [f"{folder}/{name}" for name in LINK.findall(text)]
    listed = [name for name in dict.fromkeys(linked) if name in there]
    return listed, [name for name in there if name not in listed]


def title_of(page):
    """The first heading of a page."""
    found = TITLE.search((DOCS / f"{page}.md").read_text())
    return found[1] if found else page


def short_title(page):
    """A title for the navigation where the page's own is too long for it."""
    thesis = "Progressive query processing, "
    return title_of(page).replace(thesis, "") if thesis in title_of(page) else None


def with_navigation(page, text):
    """The text of a page, with the list of the pages below it if it has some."""
    if page == "index":
        placed = {"index", *BAR, *(name for names in BELONGS.values() for name in names)}
        others = [name for name in pages_in(".") if name not in placed]
        return text + toctree({**BAR, **dict.fromkeys(others)})
    below = existing(BELONGS.get(page, []))
    if page.endswith("/index"):
        folder = page.removesuffix("/index")
        listed, others = ordered(folder, text)
        if others:
            text += "\n## More\n\n" + "".join(f"- [{title_of(name)}](/{name}.md)\n" for name in others)
        below = [*listed, *others, *below]
    return text + toctree({name: short_title(name) for name in below}) if below else text


# -- the API reference --------------------------------------------------------------------------


@cache
def homes(package):
    """Where a package's names come from: {name: module}, from the imports of its file."""
    tree = ast.parse(Path(importlib.import_module(package).__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


def comment_of(module, name):
    """The `#:` comment above a constant."""
    home = homes(module).get(name, module)
    analyzer = ModuleAnalyzer.for_module(home)
    return [line for line in analyzer.find_attr_docs().get(("", name), []) if line.strip()]


def entry(module, name):
    """What makes the entry of one public name."""
    thing = getattr(importlib.import_module(module), name)
    if inspect.isclass(thing):
        kind = "exception" if issubclass(thing, BaseException) else "class"
        ours = any(base.__module__.startswith("headrace") for base in thing.__bases__)
        return [f".. auto{kind}:: {module}.{name}", *(["   :show-inheritance:"] if ours else []), ""]
    if inspect.isroutine(thing):
        return [f".. autofunction:: {module}.{name}", ""]
    said = comment_of(module, name)
    if not said:
        raise ValueError(f"{module}.{name} is public and has no comment; write what it is above it, after #:")
    return [f".. py:data:: {module}.{name}", "", *(f"   {line}" for line in said), ""]


def with_entries(text):
    """The text of a page of docs/api, with each block of names made into a table and the entries."""

    def expanded(block):
        module = block["module"]
        names = block["names"].split()
        callables = [name for name in names if callable(getattr(importlib.import_module(module), name))]
        table = [".. autosummary::", "   :nosignatures:", "", *(f"   ~{module}.{name}" for name in callables), ""]
        lines = table if len(callables) > 1 else []
        for name in names:
            lines += entry(module, name)
        return "\n".join(["```{eval-rst}", *lines, "```"])

    return BLOCK.sub(expanded, text)


# -- what lies outside of docs/ -----------------------------------------------------------------

OUTWARD = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[\w/.-]+\.md)((?:#[^)]*)?)\)")
#: Pages of the site that stand for documents of the repository.
STANDS_FOR = {"CHANGELOG.md": "/changelog.md", "README.md": "/index.md"}


def inward(page, text):
    """The text of a page, in which links to documents outside of docs/ lead to what the site has in their place, or are none."""

    def replaced(link):
        there = (DOCS / page).parent.joinpath(link[2]).resolve()
        if there.is_relative_to(DOCS):
            return link[0]
        here = STANDS_FOR.get(there.name)
        return f"[{link[1]}]({here})" if here else link[1]

    return OUTWARD.sub(replaced, text)


def changelog():
    """CHANGELOG.md of the repository, whose links begin one folder higher."""
    return (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")


def read(app, page, source):
    """Sphinx hands a page over before it reads it."""
    text = changelog() if page == "changelog" else inward(page, source[0])
    if page.startswith("api/"):
        text = with_entries(text)
    source[0] = with_navigation(page, text)


def setup(app):
    """Read every page this way."""
    app.connect("source-read", read)
