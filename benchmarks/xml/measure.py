"""Measures one system on one document: ``python -m benchmarks.xml.measure SYSTEM KIND SIZE ROOT``. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import psutil

from benchmarks.isolation import pin
from benchmarks.process import peak_rss, reset_peak, rss
from benchmarks.xml import CHILDREN, CLOSED, LARGE, MANY, OURS, SPARK, TWIG, rivals
from benchmarks.xml.multiway import probes

if TYPE_CHECKING:
    from headrace.xml import Twigs

CHUNK = 1 << 20  # bytes read at a time
SMALL_CHUNK = 4 << 10  # bytes read at a time where the first fragment is waited for
REPEATS = 3  # of which the fastest counts, after one that does not; a large document is read once
JOIN_MEMORY = "16MiB"  # of a progressive join; the fragments of 1 GB do not fit
#: The side of a join that each of the two twigs is, and what its columns are called there.
SIDES: list[tuple[Literal["left", "right"], dict[str, str]]] = [
    ("left", {"id": "key", "name": "name"}),
    ("right", {"itemref/item": "key", "price": "price"}),
]


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


def chunks(file: Path, size: int = CHUNK) -> Iterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(size):
            yield chunk


def tokenise(file: Path) -> int:
    """Our tokeniser, with an event for every tag, attribute and text."""
    from headrace.xml import Tokeniser

    tokeniser = Tokeniser()
    count = sum(len(events) for chunk in chunks(file) for events in tokeniser.feed(chunk))
    return count + sum(len(events) for events in tokeniser.end())


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


@cache
def both() -> Twigs:
    """Items and closed auctions, from one scan."""
    from headrace.xml import Twigs

    return Twigs([TWIG, CLOSED])


def join(file: Path) -> int:
    """Fragments of items and of closed auctions, joined by a progressive join as they come."""
    import headrace as hr
    from headrace.progressive import ProgressiveJoin

    op = ProgressiveJoin(hr.equal("key"), JOIN_MEMORY)
    count = 0
    for number, batch in both().fragments(chunks(file)):
        side, columns = SIDES[number]
        fragments = batch.select(list(columns)).rename_columns(list(columns.values()))
        count += sum(out.num_rows for out in op.insert(side, fragments))
    return count + sum(out.num_rows for out in op.finish())


def first(file: Path) -> int:
    """The bytes that were fed when the first fragment came."""
    from headrace.xml import Twig

    matcher, fed = Twig(TWIG).matcher(), 0
    for chunk in chunks(file, SMALL_CHUNK):
        fed += len(chunk)
        if any(batch.num_rows for batch in matcher.feed(chunk)):
            break
    return fed


MEASURED: dict[tuple[str, str], Callable[[Path], int]] = {
    (OURS, "tokenise"): tokenise,
    ("expat", "tokenise"): rivals.tokenise_expat,
    ("lxml iterparse", "tokenise"): rivals.tokenise_lxml,
    (OURS, "twig"): twig,
    ("expat, machine in Python", "twig"): rivals.twig_expat,
    ("lxml iterparse, machine in Python", "twig"): rivals.twig_lxml,
    ("lxml iterparse, by tag", "twig"): rivals.twig_iterparse,
    ("saxonche", "twig"): rivals.twig_saxon,
    (SPARK, "twig"): lambda file: rivals.twig_spark(rivals.local_spark(), file),
    (f"headrace, {MANY:,} twigs", "twig"): twigs,
    (OURS, "join"): join,
    ("lxml iterparse and a dict", "join"): rivals.join_iterparse,
    ("saxonche", "join"): rivals.join_saxon,
    (SPARK, "join"): lambda file: rivals.join_spark(rivals.local_spark(), file),
    (OURS, "first"): first,
    ("lxml iterparse, by tag", "first"): rivals.first_iterparse,
    ("saxonche", "first"): rivals.first_saxon,
    ("rop", "probes"): lambda file: probes("rop"),
    ("rop-literal", "probes"): lambda file: probes("rop-literal"),
    ("sequential", "probes"): lambda file: probes("sequential"),
    ("apriori", "probes"): lambda file: probes("apriori"),
}


def main(system: str, kind: str, size: str, root: str) -> None:
    pin(0)
    file = document(int(size), Path(root))
    run = MEASURED[system, kind]
    run(document(200_000, Path(root)))
    reset_peak()
    before = rss()
    best: dict[str, Any] = {"seconds": float("inf")}
    for _ in range(REPEATS if int(size) < LARGE and kind != "probes" else 1):
        begun, used = time.perf_counter(), _used()
        results = run(file)
        seconds, cpu = time.perf_counter() - begun, _used() - used
        if seconds < best["seconds"]:
            best = {"seconds": seconds, "cpu": cpu, "results": results}
    if system != SPARK:  # which has its memory in a process of Java, as large as it may be
        best["growth"] = peak_rss() - before
    if kind == "first":
        with file.open("rb") as source:
            best["due"] = source.read(CHUNK).index(b"</item>") + len(b"</item>")
    sys.stdout.write(json.dumps({**best, "bytes": file.stat().st_size}))


def _used() -> float:
    """Seconds of processor time of this process and of those that it has started."""
    children = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return time.process_time() + sum(times.user + times.system for times in children)


if __name__ == "__main__":
    main(*sys.argv[1:])
