"""Fuzzing of what others write: pipeline files, feeds and XML. Inputs of a corpus are mutated and handed to the readers.

    python -m soak fuzz --seconds 3600 --only toml

A finding is an exception that is not a `HeadraceError`, an input that takes longer than DEADLINE, and memory that grows by more
than GROWTH. It is written to a file, with which it can be tried again; a mended one goes into the corpus.

The mutations know the formats' words. Coverage does not guide them: most of the readers is compiled, or is the standard
library's, and would not be seen.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import io
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.pipeline.read import Draft

DEADLINE = 10.0  # seconds for one input: the largest takes a few milliseconds
GROWTH = 512 << 20  # bytes of memory beyond those after the corpus itself was read
LARGEST = 64 << 10  # bytes of a mutated input
TESTS = Path(__file__).parents[1] / "tests"
SEEN = datetime(2026, 1, 1, tzinfo=UTC)

Target = Callable[[bytes], object]


class TooLong(BaseException):
    """An input took longer than DEADLINE. Not an Exception, so that no reader takes it for one of its own."""


@dataclass
class Finding:
    """An input that a reader did not take as it must."""

    target: str
    data: bytes
    words: str


@dataclass
class Report:
    """What was tried."""

    target: str
    inputs: int = 0
    refused: int = 0
    """inputs that were refused with a HeadraceError, as they should be; the others were read"""
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)


# -- readers -----------------------------------------------------------------------------------------------------------------


def read_toml(data: bytes) -> None:
    """Read and check a pipeline file, without Spark and without asking a server."""
    from headrace.pipeline.check import check_draft
    from headrace.pipeline.read import read_draft

    path = _place() / "pipeline.toml"
    path.write_bytes(data)
    draft = read_draft(path, {"NAME": "value", "WAREHOUSE": "warehouse"})
    if not _asks_a_server(draft):
        check_draft(draft)
    draft.pipeline()


@functools.cache
def _place() -> Path:
    """A directory with what the pipelines of the corpus name, which is gone with the process."""
    import pyarrow as pa

    import headrace as hr

    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="headrace-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name in ("incoming", "payments", "documents"):
        (place / name).mkdir()
    products = pa.table({"product_id": pa.array(range(50), pa.int64()), "price": pa.array(range(50), pa.int64())})
    hr.Relation.create(place / "products.rel", products, key="product_id").close()
    return place


def _asks_a_server(draft: Draft) -> bool:
    parts = [draft.source, draft.sink, *draft.sources.values()]
    return any(getattr(part, "format", None) in ("kafka", "postgresql") for part in parts)


def read_feed(data: bytes) -> None:
    """Read a feed, once as its own words say and once with the encoding that a server may name."""
    from headrace.feeds.parser import parse_feed

    for content_type in (None, "text/xml; charset=koi8-r") if len(data) % 4 == 0 else (None,):
        parse_feed(data, "https://example.org/feed", seen=SEEN, content_type=content_type)


def read_xml(data: bytes) -> None:
    """Match documents with twigs that select attributes, texts and whole elements."""
    from headrace.xml import DocumentMatcher, Twig

    for twig in ("//item", "//a[b]//c"):
        for _ in DocumentMatcher(Twig(twig), memory="8MiB").fragments(lambda: io.BytesIO(data)):
            pass


TARGETS: dict[str, Target] = {"toml": read_toml, "feeds": read_feed, "xml": read_xml}
CORPORA = {
    "toml": [TESTS / "fuzz" / "corpus" / "toml"],
    "feeds": [TESTS / "fuzz" / "corpus" / "feeds", TESTS / "feeds" / "corpus"],
    "xml": [TESTS / "fuzz" / "corpus" / "xml", TESTS / "xml" / "documents", TESTS / "feeds" / "corpus"],
}
_XML_WORDS = (
    b"<", b">", b"</", b"/>", b"<!", b"<?", b"?>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"&", b"&amp;", b"&#0;",
    b"&#x110000;", b"&#xD800;", b"&lt", b"<!DOCTYPE a [", b"<!ENTITY x 'y'>",
    b"<!ENTITY % p SYSTEM 'file:///etc/passwd'>", b"]>", b"&x;", b'xmlns="', b'xmlns:a="', b"a:", b'="', b"'",
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b"<?xml version='1.0' encoding='utf-16'?>", b"encoding='koi8-r'", b"<item>", b"</item>", b"<a><b/><c>",
    b"</c></a>", b"<rss version='2.0'><channel>", b"<entry>", b"<guid>",
    b"<pubDate>Thu, 99 Feb 99999 99:99:99 +9999</pubDate>", b"<updated>-0001-13-32T25:61:61Z</updated>",
    b"<georss:point>91 181</georss:point>", b"<geo:lat>nan</geo:lat>", b"<ttl>1e999</ttl>",
    b"<link href='http://[::1'/>", b"xml:base='http://[/'", b"<content type='xhtml'>",
)  # fmt: skip
_TOML_WORDS = (
    b"[", b"]", b"[[", b"]]", b"=", b'"', b'"""', b"'''", b"#", b"\n", b".", b"{", b"}", b",", b"[step]",
    b"[[step]]", b"[source]", b"[sink]", b"[sources.a]", b"[[source]]", b"[spark]", b"${NAME}", b"${NOT_THERE}",
    b"$${NAME}", b"${", b'"\\u0000"', b'"\\uD800"', b"nan", b"-inf", b"1e400", b"9" * 30, b"0x" + b"f" * 30,
    b"1979-05-27T07:32:00Z", b"true", b'format = "delta"', b'format = "xml"', b'format = "csv"',
    b'format = "parquet"', b'format = "console"', b'enrich = "x"', b'select = ["a"]', b'filter = "a > 1"',
    b'window_join = "a"', b'sample = 10', b'twig = "//a[b]"', b'memory = "1e99GiB"', b'memory = "-1"',
    b'every = "1 fortnight"', b'path = "s3://a/b"', b'path = "\\u0000"', b'path = "' + b"a" * 5000 + b'"',
    b'on = ["a", "b"]', b'on = "a = b and c < d"', b"columns = {}", b'columns = {a = "long"}',
    b'a = "decimal(99,99)"', b"state = 3", b"\xff", b"\r", b"a.b.c.d = 1", b"\xef\xbb\xbf",
)  # fmt: skip
WORDS: dict[str, Sequence[bytes]] = {"toml": _TOML_WORDS, "feeds": _XML_WORDS, "xml": _XML_WORDS}


# -- mutations ---------------------------------------------------------------------------------------------------------------


def mutated(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    """Change an input in one to five places: bytes, words of the format, pieces that are cut, doubled, swapped, foreign."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice((1, 2, 8, 40, 400)))
        kind = rng.randrange(9)
        if kind == 0 and out:
            out[min(at, len(out) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            out[min(at, len(out) - 1)] = rng.choice(b"\x00\x09\x0a\x0d\x20\"'&<>[]{}=#\x7f\x80\xc0\xff")
        elif kind == 2:
            out[at:at] = rng.choice(words)
        elif kind == 3:
            out[at:end] = rng.choice(words)
        elif kind == 4:
            del out[at:end]
        elif kind == 5:
            out[at:at] = bytes(out[at:end]) * rng.choice((1, 2, 30))
        elif kind == 6:
            other = rng.choice(others)
            begin = rng.randrange(len(other) + 1)
            out[at:end] = other[begin : begin + rng.choice((8, 80, 800))]
        elif kind == 7:
            out[at:at] = rng.choice(words) * rng.choice((3, 200, 3000))
        else:
            lines = bytes(out).split(b"\n")
            rng.shuffle(lines)
            out = bytearray(b"\n".join(lines))
        del out[LARGEST:]
    return bytes(out)


# -- the run -----------------------------------------------------------------------------------------------------------------


def fuzz(target: str, *, seconds: float, seed: int, most: int | None = None, until: int = 20) -> Report:
    """Try the corpus, then mutations of it, for a time or a number of inputs, until there are so many findings."""
    read = TARGETS[target]
    corpus = corpus_of(target)
    report, rng, begun = Report(target), random.Random(seed), time.monotonic()
    known: set[str] = set()

    def attempt(data: bytes) -> None:
        report.inputs += 1
        try:
            with _deadline():
                read(data)
        except HeadraceError:
            report.refused += 1
        except (Exception, TooLong) as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-2:])
            if where not in known:  # one finding for each place
                known.add(where)
                report.findings.append(Finding(target, data, f"{type(error).__name__}: {error}\n{where}"))

    with suppress(Exception):  # imports and compiled kernels, which take longer than any input; it is tried again below
        read(corpus[0])
    for data in corpus:
        attempt(data)
    bound = _memory() + GROWTH
    while time.monotonic() - begun < seconds and (most is None or report.inputs < most) and len(known) < until:
        data = mutated(rng.choice(corpus), corpus, WORDS[target], rng)
        attempt(data)
        if _memory() > bound:
            report.findings.append(Finding(target, data, f"memory grew by more than {GROWTH >> 20} MiB"))
            break
    report.seconds = time.monotonic() - begun
    return report


def corpus_of(target: str) -> list[bytes]:
    """The inputs to begin with."""
    return [
        path.read_bytes()
        for place in CORPORA[target]
        for path in sorted(place.glob("*"))
        if path.is_file() and path.stat().st_size <= LARGEST
    ]


@contextmanager
def _deadline() -> Iterator[None]:
    def over(*_: object) -> None:
        raise TooLong(f"no answer within {DEADLINE:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def run(argv: Sequence[str]) -> int:
    """Fuzz for a while and tell what was found; returns the exit code, 1 if anything was."""
    parser = argparse.ArgumentParser(prog="python -m soak fuzz", description="Hand damaged inputs to the readers.")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each reader")
    parser.add_argument("--only", choices=sorted(TARGETS), action="append", help="some of the readers; all by default")
    parser.add_argument("--seed", type=int, default=None, help="of the mutations; the time by default, and shown")
    parser.add_argument("--directory", type=Path, default=Path("build", "fuzz"), help="where findings are written")
    options = parser.parse_args(list(argv))
    seed = time.time_ns() & 0xFFFFFFFF if options.seed is None else options.seed
    code = 0
    for target in options.only or TARGETS:
        report = fuzz(target, seconds=options.seconds, seed=seed)
        found = f"{len(report.findings)} findings" if report.findings else "nothing found"
        rate = report.inputs / max(report.seconds, 1e-9)
        sys.stdout.write(
            f"{target}: {report.inputs:,} inputs in {report.seconds:.0f} s ({rate:.0f} a second, seed {seed}), "
            f"{report.refused:,} of them refused; {found}\n"
        )
        for number, finding in enumerate(report.findings):
            code = 1
            options.directory.mkdir(parents=True, exist_ok=True)
            path = options.directory / f"{target}-{seed}-{number}"
            path.write_bytes(finding.data)
            sys.stdout.write(f"{path}: {finding.words}\n")
        sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
