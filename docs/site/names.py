"""Public names in docstrings and in the sentences of pages become links to their entries in the API reference."""

import re
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

API = Path(__file__).parent.parent / "api"
BLOCK = re.compile(r"^```\{api\} (?P<module>[\w.]+)\n(?P<names>.*?)^```$", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"^(hr\.)?([A-Za-z_]\w*)((?:\.\w+)?)(\(.*\))?$", re.DOTALL)


def entries():
    """Every name that the pages of docs/api have an entry for, with its module: headrace.semistream.MeshJoin."""
    found = []
    for page in sorted(API.glob("*.md")):
        for block in BLOCK.finditer(page.read_text()):
            found += [f"{block['module']}.{name}" for name in block["names"].split()]
    return found


@cache
def written():
    """Names as sentences have them, and what they stand for: hr.enrich, and classes without their module where no two have it."""
    stands: dict[str, str] = {}
    for full in entries():
        module, name = full.rsplit(".", 1)
        if module == "headrace":
            stands[f"hr.{name}"] = full
        if name[0].isupper() and not name.isupper():
            stands[name] = full if module == "headrace" else stands.get(name, full)
    stands["SSIJ"] = "headrace.semistream.SSIJ"
    return stands


def target_of(text):
    """The entry that a piece of code names, or None: `hr.load(df, ...)` is headrace.load."""
    found = CALL.match(text)
    full = written().get((found[1] or "") + found[2]) if found else None
    return full and full + found[3]


class LinkNames(SphinxTransform):
    """Link the first mention of a public name in each section of a guide."""

    default_priority = 400

    def apply(self, **kwargs):
        """Wrap them in references."""
        page = self.env.current_document.docname
        if page.startswith(("api/", "reproduction/")) or page in ("changelog", "design"):
            return
        seen = set()
        for literal in list(self.document.findall(nodes.literal)):
            target = target_of(literal.astext())
            section = literal.parent
            linked = False
            while section is not None and not isinstance(section, nodes.section):
                linked = linked or isinstance(section, nodes.reference | nodes.title | addnodes.pending_xref)
                section = section.parent
            if target is None or linked or (id(section), target) in seen:
                continue
            seen.add((id(section), target))
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refwarn=False, refdoc=page
            )
            literal.replace_self(link)
            link += literal


def resolve(app, env, node, content):
    """Find what a docstring calls by a short name, where Sphinx looked for it in the class's own module alone."""
    if node.get("refdomain") != "py":
        return None
    target = target_of(node["reftarget"].lstrip("."))
    if target is None:
        return None
    domain = env.domains["py"]
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)


def setup(app):
    """Link names while pages are read, and where Sphinx has found nothing."""
    app.add_transform(LinkNames)
    app.connect("missing-reference", resolve)
