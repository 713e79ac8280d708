"""`make check` finds links that lead nowhere, and prints where they are."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "check_links.py"

GUIDE = """# A guide
## `hr.load(df, path)`: once
## Same
## Same
<a id="by-hand"></a>
"""


def check(root: Path) -> tuple[int, list[str]]:
    run = subprocess.run([sys.executable, SCRIPT, str(root)], capture_output=True, text=True)
    assert run.stderr == ""
    return run.returncode, run.stdout.splitlines()


@pytest.fixture
def documents(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guide.md").write_text(GUIDE)
    (tmp_path / "docs" / "plot (1).png").write_bytes(b"")
    return tmp_path


def test_our_documents_have_no_broken_link():
    code, lines = check(SCRIPT.parent.parent)
    assert (code, lines[:-1]) == (0, [])
    assert int(lines[-1].split()[1]) > 60


@pytest.mark.parametrize(
    "link",
    [
        "[a](docs/guide.md)",
        "[a](docs/guide.md#hrloaddf-path-once)",
        "[a](docs/guide.md#same-1)",
        "[a](docs/guide.md#by-hand)",
        "![a](<docs/plot%20(1).png>)",
        "[a](docs/)",
        "[a](https://example.org/gone.md)",
        "[a](mailto:x@example.org)",
        "`[a](gone.md)`",
        "```\n[a](gone.md)\n```",
        "````md\n```\n[a](gone.md)\n```\n````",
        "# Here\n[a](#here)",
    ],
)
def test_links_that_lead_somewhere_are_left_alone(documents, link):
    (documents / "README.md").write_text(f"{link}\n")
    assert check(documents) == (0, ["links: 2 documents, 0 broken"])


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("[a](docs/gone.md)", "docs/gone.md does not exist"),
        ("[`a`](docs/gone.md)", "docs/gone.md does not exist"),
        ("![a](docs/gone.png)", "docs/gone.png does not exist"),
        ('<img src="docs/gone.svg" width="3">', "docs/gone.svg does not exist"),
        ('[a](docs/gone.md "title")', "docs/gone.md does not exist"),
        ("[a]: docs/gone.md", "docs/gone.md does not exist"),
        ("[a](docs/guide.md#sam)", "docs/guide.md#sam: guide.md has no #sam; is it #same?"),
        ("[a](docs/guide.md#same-2)", "docs/guide.md#same-2: guide.md has no #same-2; is it #same-1?"),
        ("[a](#gone)", "#gone: README.md has no #gone"),
        ("[a](../outside.md)", "../outside.md leads out of the repository"),
        ("[a](/docs/guide.md)", "/docs/guide.md begins at the root of a machine; give a path from the page"),
    ],
)
def test_a_link_that_leads_nowhere_is_printed_with_its_line(documents, link, said):
    (documents / "README.md").write_text(f"\n```\nx\n```\n\n{link}\n")
    assert check(documents) == (1, [f"README.md:6: {said}", "links: 2 documents, 1 broken"])
