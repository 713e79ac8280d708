"""The documentation site: `make docs` builds it with Sphinx from the Markdown in docs/ into build/site.

Nothing on a page is asked for elsewhere: fonts are the reader's own, scripts and the search index lie beside the pages.
"""

import hashlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "src")]

import docstrings
import names
import pages
import tables

import headrace

project = "Headrace"
author = "the Headrace authors"
release = version = headrace.__version__
html_title = f"Headrace {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["site/*"]
smartquotes_action = "D"  # dashes; quotes in sentences are often those of values
nitpicky = False  # types of other libraries in signatures have no page here

# -- Markdown -----------------------------------------------------------------------------------

myst_heading_anchors = 4  # GitHub's own, so that a link works in the repository and on the site
myst_links_external_new_tab = False

# -- the API reference --------------------------------------------------------------------------

default_role = "py:obj"  # `name` in a docstring is a link where there is such a name
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True  # as written, and not as they are when the page is made
autodoc_class_signature = "mixed"
autosummary_generate = False
napoleon_custom_sections = ["Reference", "Deviations"]
napoleon_use_ivar = True
napoleon_use_param = False  # several parameters that share a description stay together
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"

# -- looks --------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_static_path = ["site.css", "mark.svg"]
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "scorer.js")
html_favicon = "mark.svg"
html_logo = "mark.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {
    "logo": {"text": "Headrace", "alt_text": "Headrace"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button-field"],
    "search_bar_text": "Search",
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "show_toc_level": 1,
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "collapse_navigation": True,
    "footer_start": ["footer"],
    "footer_center": [],
    "footer_end": [],
    "back_to_top_button": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {page: [] for page in pages.WITHOUT_SIDEBAR}
html_context = {"default_mode": "auto"}  # light or dark as the reader's own screen is
templates_path = ["templates"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True


def setup(app):
    """Let Sphinx read our pages and docstrings as they are written for other readers."""
    docstrings.setup(app)
    names.setup(app)
    pages.setup(app)
    tables.setup(app)
    made_by = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.glob("*.py")))).hexdigest()
    app.add_config_value("made_by", made_by, "env")  # another one, and every page is read again
    return {"parallel_read_safe": True, "parallel_write_safe": True}
