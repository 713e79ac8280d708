"""Check that relative links, pictures and anchors of the documents lead somewhere; no network. `make check` runs it.

Each that does not is printed as file:line, with what was looked for. Links to other sites are not followed.
"""

import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^ *(`{3,}|~{3,})")
LINK = re.compile(r"(?<!\\)\]\(\s*(<[^>]+>|[^)\s]+)(?:\s+\"[^\"]*\")?\s*\)")
NAMED = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?")
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=[\"']([^\"'\s]+)[\"']")
ID = re.compile(r"<[a-z]+\b[^>]*?\b(?:id|name)=[\"']([^\"']+)[\"']")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.+?)(?:\s+#+)?\s*$")
CODE = re.compile(r"`+[^`]*`+")
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
ENTRIES = re.compile(r"^```\{api\} ([\w.]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documents(root: Path) -> list[Path]:
    """The documents whose links are checked."""
    return sorted([*root.glob("*.md"), *root.glob("examples/*.md"), *(root / "docs").rglob("*.md")])


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of code blocks, with their numbers."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        found = FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        elif not fence:
            yield number, line


def slug(heading: str) -> str:
    """The anchor that GitHub and the site give a heading."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """All places in a page that a link can lead to."""
    text = page.read_text()
    found: set[str] = set()
    for _, line in prose(text):
        found.update(ID.findall(line))
        heading = HEADING.match(line)
        if heading:
            base = slug(heading[1])
            name, again = base, 0
            while name in found:
                again += 1
                name = f"{base}-{again}"
            found.add(name)
    for module, names in ENTRIES.findall(text):
        found.update(f"{module}.{name}" for name in names.split())
    return frozenset(found)


def links(text: str) -> Iterator[tuple[int, str]]:
    """The targets of links and pictures, with the numbers of their lines."""
    for number, line in prose(text):
        plain = CODE.sub(lambda code: "`" * len(code[0]), line)
        for pattern in (LINK, NAMED, HTML):
            yield from ((number, target.strip("<>")) for target in pattern.findall(plain))


def mistake(page: Path, target: str, root: Path) -> str | None:
    """What is wrong with a link, or None."""
    path, _, anchor = unquote(target).partition("#")
    if ELSEWHERE.match(target):
        return None
    if path.startswith("/"):
        return f"{target} begins at the root of a machine; give a path from the page"
    there = (page.parent / path).resolve() if path else page
    if not there.is_relative_to(root):
        return f"{target} leads out of the repository"
    if not there.exists():
        return f"{target} does not exist"
    if anchor and there.suffix == ".md" and anchor not in anchors(there):
        near = get_close_matches(anchor, sorted(anchors(there)), n=1)
        return f"{target}: {there.name} has no #{anchor}" + (f"; is it #{near[0]}?" if near else "")
    return None


def broken(root: Path) -> list[str]:
    """Every link that leads nowhere, as file:line: what is wrong."""
    return [
        f"{page.relative_to(root)}:{number}: {wrong}"
        for page in documents(root)
        for number, target in links(page.read_text())
        if (wrong := mistake(page, target, root))
    ]


if __name__ == "__main__":
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    found = broken(root)
    for line in found:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"links: {len(documents(root))} documents, {len(found)} broken\n")
    sys.exit(bool(found))
