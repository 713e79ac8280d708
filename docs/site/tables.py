"""Long tables of measured figures are folded below their plot: a page of thirty figures can then be read from top to bottom."""

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

#: Measured tables with more rows than this are folded.
SHORT = 6
BEFORE = "Measured"


class Folded(nodes.General, nodes.Element):
    """What opens when asked: <details> of HTML."""


def visit_folded(self, node):
    """Open it, with the words that are always seen."""
    self.body.append(f"<details><summary>{node['summary']}</summary>")


def depart_folded(self, node):
    """Close it."""
    self.body.append("</details>")


class FoldMeasured(SphinxPostTransform):
    """On the pages of reproduced figures, put the table behind each plot into an element that opens when asked."""

    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs):
        """Fold them."""
        if not self.env.current_document.docname.startswith("reproduction/"):
            return
        for table in list(self.document.findall(nodes.table)):
            place = table.parent.index(table)
            before = table.parent[place - 1] if place else None
            rows = len(list(table.findall(nodes.row))) - 1
            if isinstance(before, nodes.paragraph) and before.astext().startswith(BEFORE) and rows > SHORT:
                folded = Folded(summary=f"Show the table: {rows} rows")
                table.replace_self(folded)
                folded += table


def setup(app):
    """Fold after everything else."""
    app.add_node(Folded, html=(visit_folded, depart_folded))
    app.add_post_transform(FoldMeasured)
