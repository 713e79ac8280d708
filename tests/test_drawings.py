"""Drawings of the documents: small, readable by whoever cannot see them, and in need of nothing from elsewhere."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
DRAWINGS = sorted((ROOT / "docs" / "drawings").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.name)
def test_a_drawing_stands_alone(drawing):
    text = drawing.read_text()
    root = ElementTree.fromstring(text)
    assert len(text) < 20_000
    assert root.find(f"{SVG}title").text
    assert root.find(f"{SVG}desc").text
    _, _, width, height = map(float, root.get("viewBox").split())
    ground = root.find(f"{SVG}rect")  # a background of its own, for pages that are dark
    assert float(ground.get("width")) >= width - 4
    assert float(ground.get("height")) >= height - 4
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg\")|@import|@font-face|<image|<script", text) == []


def test_every_drawing_is_shown():
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert [d.name for d in DRAWINGS if d.name not in pages] == []
