"""The documents of [PQP] ch. 7 as bytes, made from a seed: X007, TPC-H, DBLP, SIGMOD Record, Swiss-Prot and experiments.

Those of XMark's shape are headrace.bench.auctions. Elements have the names that the twigs of the text ask for; contents that no
twig looks at are cut out of a long random text, which costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from headrace.bench.relations import tpch_table

Numbers = Any  # arrays

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)
LONG = 1 << 20  # characters of the text that contents are cut out of


class Cuttings:
    """Pieces of a random text, in an order that the seed gives."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._text = rng.choice(LETTERS, LONG).tobytes().decode()
        self._rng = rng
        self._starts: list[int] = []

    def __call__(self, length: int) -> str:
        """Return a piece of this length."""
        if not self._starts:
            self._starts = self._rng.integers(0, LONG - 10_000, 4096).tolist()
        start = self._starts.pop()
        return self._text[start : start + length]


# -- X007 ------------------------------------------------------------------------------------------------------------------

ATOMIC_PER_COMP, COMP_PER_MODULE, ASSM_PER_ASSM, ASSM_LEVELS, COMP_PER_ASSM = 20, 50, 3, 5, 3  # Table 7.2
DOCUMENT_SIZE, MANUAL_SIZE = 500, 2000  # bytes, Table 7.2
TYPES = 10  # of connections, as in OO7; each is as likely as any


def x007(connections: int, seed: int, modules: float = 1.0) -> Iterator[bytes]:
    """Yield a module with its manual, the tree of assemblies, and composite parts with so many connections an atomic part."""
    rng = np.random.default_rng(seed)
    cut = Cuttings(rng)
    yield f'<Module MyID="1"><Manual><text>{cut(MANUAL_SIZE)}</text></Manual>\n'.encode()
    yield _assembly(1, rng).encode()
    for number in range(round(COMP_PER_MODULE * modules)):
        yield f'<CompositePart MyID="{number}"><Document><text>{cut(DOCUMENT_SIZE)}</text></Document>\n'.encode()
        for part in range(ATOMIC_PER_COMP):
            types = rng.integers(0, TYPES, connections).tolist()
            ends = rng.integers(0, ATOMIC_PER_COMP, connections).tolist()
            yield "".join(
                f'<Connection type="type{type_:03d}" length="{part * end + 1}"><AtomicPart MyID="{number}.{end}" x="{part}"'
                f' y="{end}"/></Connection>\n'
                for type_, end in zip(types, ends, strict=True)
            ).encode()
        yield b"</CompositePart>\n"
    yield b"</Module>\n"


def _assembly(level: int, rng: np.random.Generator) -> str:
    """An assembly with those below it; one of the lowest level refers to composite parts."""
    if level == ASSM_LEVELS:
        parts = rng.integers(0, COMP_PER_MODULE, COMP_PER_ASSM).tolist()
        return "<BaseAssembly>" + "".join(f'<CompositeRef part="{part}"/>' for part in parts) + "</BaseAssembly>\n"
    return f"<ComplexAssembly>\n{''.join(_assembly(level + 1, rng) for _ in range(ASSM_PER_ASSM))}</ComplexAssembly>\n"


# -- TPC-H -----------------------------------------------------------------------------------------------------------------


def tpch(table: str, scale: float, directory: Path) -> Iterator[bytes]:
    """Yield a table of tpchgen-cli, a `T` for each row; the key of a customer is in CUSTKEY on both sides, as the twigs ask."""
    rows = pq.read_table(tpch_table(directory, table, scale))
    tags = [name.upper().replace("O_CUSTKEY", "CUSTKEY").replace("C_CUSTKEY", "CUSTKEY") for name in rows.column_names]
    template = "<T>" + "".join(f"<{tag}>%s</{tag}>" for tag in tags) + "</T>\n"
    yield b"<table>\n"
    for batch in rows.to_batches():
        yield "".join(template % row for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)).encode()
    yield b"</table>\n"


# -- DBLP and SIGMOD Record --------------------------------------------------------------------------------------------------

INPROCEEDINGS, ARTICLES = 48_000, 25_000  # in 29 MB of DBLP, as in its 127 MB
VENUES, FIELDS = 240, 12  # series of conferences and journals, and the fields that they belong to
FIELD_AUTHORS = 3_000  # authors of a field
OTHERS = 0.1  # of the authors of a paper, the part that comes from another field
ISSUES, RECORDED, RECORD_AUTHORS = 67, 1_504, 2.5  # of SIGMOD Record: issues, articles, authors of an article
PRODUCTIVITY = 0.8  # the exponent of Zipf's law that authors of a field publish by
DATABASES = 0  # the field of SIGMOD Record


class Authors:
    """The authors of all fields: a few of each publish much, most little."""

    def __init__(self, scale: float, rng: np.random.Generator) -> None:
        self._rng = rng
        self._each = max(20, round(FIELD_AUTHORS * scale))
        weights = 1 / np.arange(1, self._each + 1) ** PRODUCTIVITY
        self._until = np.cumsum(weights / weights.sum())

    def draw(self, field: int, count: int) -> list[str]:
        """Return authors of a paper in a field, each of them once."""
        fields = np.where(self._rng.random(count) < OTHERS, self._rng.integers(0, FIELDS, count), field)
        ranks = np.minimum(np.searchsorted(self._until, self._rng.random(count)), self._each - 1)
        return list(dict.fromkeys(f"Author {f}-{r}" for f, r in zip(fields.tolist(), ranks.tolist(), strict=True)))


def dblp(scale: float, seed: int, mixed: bool = False) -> Iterator[bytes]:
    """Yield DBLP: papers in the order of their conferences and journals, each of one field; or of all fields mixed."""
    rng = np.random.default_rng([seed, 1])
    cut, authors = Cuttings(rng), Authors(scale, rng)
    papers = round((INPROCEEDINGS + ARTICLES) * scale)
    venues = np.sort(rng.integers(0, VENUES, papers))
    field_of = rng.integers(0, FIELDS, VENUES)
    in_journal = rng.random(VENUES) < ARTICLES / (INPROCEEDINGS + ARTICLES)
    counts = 1 + rng.poisson(1.2, papers)
    if mixed:
        venues = rng.permutation(venues)
    yield b"<dblp>\n"
    for number, (venue, count) in enumerate(zip(venues.tolist(), counts.tolist(), strict=True)):
        tag, series = ("article", "journal") if in_journal[venue] else ("inproceedings", "booktitle")
        people = "".join(f"<author>{name}</author>" for name in authors.draw(int(field_of[venue]), count))
        yield (
            f'<{tag} key="{series}/{venue}/{number}" mdate="2002-01-03">{people}<title>{cut(60)}.</title><pages>{number % 900}-'
            f"{number % 900 + 12}</pages><year>{1980 + number % 23}</year><{series}>{cut(12)}</{series}><ee>db/{venue}/{cut(20)}"
            f".html</ee><url>db/{venue}/{number}.html</url></{tag}>\n"
        ).encode()
    yield b"</dblp>\n"


def sigmod_record(scale: float, seed: int) -> Iterator[bytes]:
    """Yield SIGMOD Record: issues with their articles, by authors of one of DBLP's fields."""
    rng = np.random.default_rng([seed, 2])
    cut, authors = Cuttings(rng), Authors(scale, rng)
    yield b"<SigmodRecord>\n"
    for issue, articles in enumerate(np.array_split(np.arange(round(RECORDED * scale)), ISSUES)):
        yield f"<issue><volume>{11 + issue // 4}</volume><number>{1 + issue % 4}</number><articles>\n".encode()
        for number in articles.tolist():
            names = authors.draw(DATABASES, 1 + int(rng.poisson(RECORD_AUTHORS - 1)))
            people = "".join(f'<author position="{place:02d}">{name}</author>' for place, name in enumerate(names))
            yield (
                f"<article><title>{cut(50)}</title><initPage>{number}</initPage><endPage>{number + 9}</endPage>"
                f"<authors>{people}</authors></article>\n"
            ).encode()
        yield b"</articles></issue>\n"
    yield b"</SigmodRecord>\n"


# -- Swiss-Prot and experiments ----------------------------------------------------------------------------------------------

ENTRIES, ACCESSIONS = 50_000, 57_000  # of Swiss-Prot; the latter by Table 7.5: 11,420 experiments at 0.2
SPECIES = 8_000


def accession(number: int) -> str:
    """The accession number of that rank in the document."""
    return f"P{number:05d}"


def swiss_prot(scale: float, seed: int) -> Iterator[bytes]:
    """Yield entries with an accession number or several, some two kilobytes each."""
    rng = np.random.default_rng([seed, 3])
    cut = Cuttings(rng)
    entries, accessions = round(ENTRIES * scale), round(ACCESSIONS * scale)
    counts = 1 + np.bincount(rng.integers(0, entries, accessions - entries), minlength=entries)
    species = rng.integers(0, SPECIES, entries).tolist()
    first = 0
    yield b"<root>\n"
    for number, (count, kind) in enumerate(zip(counts.tolist(), species, strict=True)):
        numbers = "".join(f"<AC>{accession(first + n)}</AC>" for n in range(count))
        first += count
        refs = "".join(
            f'<Ref num="{n}" pos="SEQUENCE"><Comment>{cut(40)}</Comment><Author>{cut(60)}</Author><Cite>{cut(40)}</Cite>'
            f"<MedlineID>{number}{n}</MedlineID></Ref>\n"
            for n in range(1, 1 + 2 * (number % 3))
        )
        features = "".join(
            f'<DOMAIN from="{n}" to="{n + 90}"><Descr>{cut(30)}</Descr></DOMAIN>\n' for n in range(0, 900, 90)
        )
        yield (
            f'<Entry id="{number}_MILL" class="STANDARD" mtype="PRT" seqlen="{100 + number % 700}">{numbers}'
            f'<Mod date="01-NOV-1997" Rel="35" type="Created"/>\n<Descr>{cut(90)}</Descr><Species>species {kind}</Species>'
            f"<Org>{cut(60)}</Org>\n{refs}<Keyword>{cut(200)}</Keyword>\n<Features>{features}</Features></Entry>\n"
        ).encode()
    yield b"</root>\n"


def experiments(used: Numbers, seed: int) -> Iterator[bytes]:
    """Yield an experiment with each of these accession numbers, as in the listing of Fig. 7.10."""
    cut = Cuttings(np.random.default_rng([seed, 4]))
    yield b"<BioExpts>\n"
    for number, rank in enumerate(used.tolist()):
        yield (
            f"<Expt><Info><ID>E{number}</ID><Researcher>{cut(10)}</Researcher></Info><AC>{accession(rank)}</AC>"
            f"<Observation>{cut(100)}</Observation></Expt>\n"
        ).encode()
    yield b"</BioExpts>\n"
