"""Measures one system on one document: ``python -m benchmarks.xml.measure SYSTEM KIND SIZE ROOT``. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import numpy as np

from benchmarks.isolation import pin
from benchmarks.process import peak_rss, reset_peak, rss
from benchmarks.xml import CHILDREN, MANY, TWIG
from benchmarks.xml.python_machine import PythonMachine

if TYPE_CHECKING:
    from headrace.xml import Twigs

CHUNK = 1 << 20  # bytes read at a time
REPEATS = 3  # of which the fastest counts, after one that does not


def document(size: int, root: Path) -> Path:
    """Make the document of a size, or find it."""
    from headrace.bench.auctions import auctions

    file = root / f"auctions-{size}.xml"
    if not file.exists():
        root.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        with partial.open("wb") as out:
            for part in auctions(size):
                out.write(part)
        partial.rename(file)
    return file


def chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            yield chunk


def tokenise(file: Path) -> int:
    """Our tokeniser, with an event for every tag, attribute and text."""
    from headrace.xml import Tokeniser

    tokeniser = Tokeniser()
    count = sum(len(events) for chunk in chunks(file) for events in tokeniser.feed(chunk))
    return count + sum(len(events) for events in tokeniser.end())


def tokenise_expat(file: Path) -> int:
    """A callback of expat for every tag and text."""
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = note
    with file.open("rb") as source:
        parser.ParseFile(source)
    return count


def tokenise_lxml(file: Path) -> int:
    """Start and end events of lxml's iterparse; elements are emptied when they end, so that memory stays small."""
    from lxml import etree

    count = 0
    for event, element in etree.iterparse(str(file), events=("start", "end")):
        count += 1
        if event == "end":
            element.clear()
    return count


def twig(file: Path) -> int:
    """Our twig."""
    from headrace.xml import Twig

    return sum(batch.num_rows for batch in Twig(TWIG).fragments(chunks(file)))


@cache
def standing() -> Twigs:
    """A thousand twigs, made before the document comes: the one of the other cells, and others that find nothing."""
    from headrace.xml import Twigs

    rng = np.random.default_rng(7)
    paths = [TWIG]
    while len(paths) < MANY:
        parent = list(CHILDREN)[rng.integers(0, len(CHILDREN))]
        a, b = (CHILDREN[parent][k] for k in rng.integers(0, len(CHILDREN[parent]), 2))
        paths.append(f'//{parent}[{a} = "no {len(paths)}"][{b}]')
    return Twigs(paths)


def twigs(file: Path) -> int:
    """A thousand twigs."""
    return sum(batch.num_rows for _, batch in standing().fragments(chunks(file)))


def twig_expat(file: Path) -> int:
    """The same machine in Python, called back by expat."""
    machine = PythonMachine(TWIG)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = machine.start, machine.end
    parser.CharacterDataHandler = machine.text
    with file.open("rb") as source:
        parser.ParseFile(source)
    return machine.fragments


def twig_lxml(file: Path) -> int:
    """The same machine in Python over lxml's iterparse; elements are emptied when they end, so that memory stays small."""
    from lxml import etree

    machine = PythonMachine(TWIG)
    for event, element in etree.iterparse(str(file), events=("start", "end")):
        if event == "start":
            machine.start(element.tag, element.attrib)
            continue
        if element.text:
            machine.text(element.text)
        machine.end(element.tag)
        element.clear()
    return machine.fragments


def twig_iterparse(file: Path) -> int:
    """What one would write for this twig alone: lxml's iterparse hands out items, and keeps the tree of all others."""
    from lxml import etree

    count = 0
    for _, item in etree.iterparse(str(file), events=("end",), tag="item"):
        identity, names = item.get("id"), [child.text for child in item.iterchildren("name")]
        count += len(names) if identity is not None else 0
        item.clear()
    return count


MEASURED: dict[tuple[str, str], Callable[[Path], int]] = {
    ("headrace", "tokenise"): tokenise,
    ("expat", "tokenise"): tokenise_expat,
    ("lxml iterparse", "tokenise"): tokenise_lxml,
    ("headrace", "twig"): twig,
    ("expat, machine in Python", "twig"): twig_expat,
    ("lxml iterparse, machine in Python", "twig"): twig_lxml,
    ("lxml iterparse, by tag", "twig"): twig_iterparse,
    (f"headrace, {MANY:,} twigs", "twig"): twigs,
}


def main(system: str, kind: str, size: str, root: str) -> None:
    pin(0)
    file = document(int(size), Path(root))
    run = MEASURED[system, kind]
    run(document(200_000, Path(root)))
    reset_peak()
    before = rss()
    best: dict[str, Any] = {"seconds": float("inf")}
    for _ in range(REPEATS):
        begun, used = time.perf_counter(), time.process_time()
        results = run(file)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - used
        if seconds < best["seconds"]:
            best = {"seconds": seconds, "cpu": cpu, "results": results}
    sys.stdout.write(json.dumps({**best, "bytes": file.stat().st_size, "growth": peak_rss() - before}))


if __name__ == "__main__":
    main(*sys.argv[1:])
