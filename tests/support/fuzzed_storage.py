"""Files that were written wrong, with checksums that fit, without end: the parsers behind the checksums are what is tried.

A target has a sound instance on disk, files of it to begin with, and a corpus of those that were interesting. An input is the
content of one file, under its name. It is mutated, sealed with the checksum of what it has now, put in place, and used in every
way.
"""

from __future__ import annotations

import json
import signal
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.errors import HeadraceError
from headrace.files.checked_json import dump_checked
from headrace.kernels.pages import HEADER
from headrace.relation.columns import address
from headrace.relation.manifest import _checksum as manifest_checksum  # nothing else seals a text that is no manifest
from headrace.relation.sidecar import _checksum as sidecar_checksum  # likewise, of arrays that do not fit
from headrace.runlog.files import _NO_SUM, _SUM_MARK, _TAIL  # a file whose parts contradict each other
from tests.support import damage_kinds
from tests.support.malformed_pages import reseal

PATIENCE = 20.0  # seconds for the use of one input, which takes milliseconds
PAGE = 4096
CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"

#: Numbers that lengths, counts and offsets go wrong with.
NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    63,
    64,
    65,
    255,
    256,
    4088,
    4095,
    4096,
    4097,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
)
NUMBERS += (0x80000000, 0xFFFFFFF8, 0xFFFFFFFF)
VALUES: tuple[Any, ...] = (
    None,
    True,
    "",
    "x",
    -1,
    0,
    1,
    2**31,
    2**62,
    2**63,
    2**70,
    1.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [1],
    [[]],
)
VALUES += ({"a": 1}, "é\ud800", "x" * 500, "../../etc/passwd", "shard-0000-000001.pages", "headrace")


class Hangs(BaseException):
    """The use of an input takes too long."""


@dataclass
class Target:
    """What is fuzzed: an instance, how its inputs are mutated and sealed, and how it is used.

    Parameters
    ----------
    root
        An empty directory for the instance.
    """

    root: Path
    name: str = ""
    seeds: dict[str, bytes] = field(default_factory=dict)
    """sound files, by their name below the root"""

    def mutate(self, random: Random, name: str, data: bytes) -> bytes:
        """Make something else of the content of a file."""
        raise NotImplementedError

    def seal(self, name: str, data: bytes) -> bytes:
        """Give a content the checksum that fits."""
        raise NotImplementedError

    def use(self, name: str) -> None:
        """Use the instance with that file changed, in every way."""
        raise NotImplementedError

    def corpus(self) -> Iterator[tuple[str, bytes]]:
        """The inputs that were interesting, as they were mutated, before they were sealed. `__` in a name stands for a slash."""
        for path in sorted((CORPUS / self.name).glob("*")):
            name = path.name.split("..")[0].replace("__", "/")
            if name in self.seeds:
                yield name, path.read_bytes()

    def begin(self, random: Random) -> tuple[str, bytes]:
        """An input to mutate: a sound file, or one of the corpus."""
        known = [*self.seeds.items(), *self.corpus()]
        return random.choice(known)

    def attempt(self, name: str, data: bytes) -> str | None:
        """Use one input; returns what is wrong with what happened, or None."""
        path, good = self.root / name, self.seeds[name]
        path.write_bytes(self.seal(name, data))
        try:
            with _within(PATIENCE):
                self.use(name)
        except HeadraceError as error:
            return None if str(self.root) in str(error) else f"it names no file: {error!r}"
        except Hangs:
            return "it hangs"
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            path.write_bytes(good)
        return None


def fuzz(
    target: Target, random: Random, over: Callable[[int], bool], note: Callable[[str, bytes], None]
) -> Iterator[tuple[str, bytes, str]]:
    """Try the corpus, then mutations of it, until it is over; yields inputs and what was wrong. `note` is told of each before."""
    tried = 0
    for name, data in target.corpus():
        note(name, data)
        if wrong := target.attempt(name, data):
            yield name, data, wrong
        tried += 1
    while not over(tried):
        name, data = target.begin(random)
        for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
            data = target.mutate(random, name, data)
        note(name, data)
        if wrong := target.attempt(name, data):
            yield name, data, wrong
        tried += 1


# -- bytes -----------------------------------------------------------------------------------------------------------------


def mutate_bytes(random: Random, data: bytes, *, sized: bool = False) -> bytes:
    """Change some bytes: bits, numbers that are interesting, pieces that are copied, zeroed, and with `sized` cut or doubled."""
    raw = bytearray(data)
    if not raw:
        return bytes(random.randrange(256) for _ in range(8))
    at = random.randrange(len(raw))
    match random.randrange(8 if sized else 6):
        case 0:
            raw[at] ^= 1 << random.randrange(8)
        case 1:
            raw[at] = random.randrange(256)
        case 2:
            _put(raw, at & ~3, "<I", random.choice(NUMBERS))
        case 3:
            _put(raw, at & ~7, "<q", random.choice((*NUMBERS, -1, -(1 << 63), (1 << 63) - 1, 1 << 40)))
        case 4:
            size = min(random.randrange(1, 64), len(raw) - at)
            start = random.randrange(len(raw) - size + 1)
            raw[at : at + size] = raw[start : start + size]
        case 5:
            size = min(random.randrange(1, 64), len(raw) - at)
            raw[at : at + size] = bytes(size) if random.random() < 0.5 else b"\xff" * size
        case 6:
            del raw[at : at + random.randrange(1, 64)]
        case 7:
            raw[at:at] = raw[at : at + random.randrange(1, 64)]
    return bytes(raw)


def _put(raw: bytearray, at: int, layout: str, value: int) -> None:
    with suppress(struct.error):
        struct.pack_into(layout, raw, at, value)


def mutate_json(random: Random, body: Any) -> Any:
    """Change one value anywhere in it, remove it, or put another beside it."""
    places = list(_places(body))
    if not places:
        return random.choice(VALUES)
    holder, key = random.choice(places)
    match random.randrange(5):
        case 0 | 1:
            holder[key] = random.choice(VALUES)
        case 2 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = holder[key] + random.choice((-1, 1, -(2**31), 2**31, 2**62, 0.5))
        case 3:
            del holder[key]
        case _:
            other, name = random.choice(places)
            with suppress(KeyError, IndexError):
                holder[key] = json.loads(json.dumps(other[name]))
    return body


def _places(body: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(body) if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ()
    for key in keys:
        yield body, key
        yield from _places(body[key])


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- relations ---------------------------------------------------------------------------------------------------------------

_RELATIONS: dict[str, Callable[[Path, int], None]] = {
    "key": damage_kinds.by_key,
    "text": damage_kinds.by_text_key,
    "frequency": damage_kinds.by_frequency,
    "changed": damage_kinds.changed_by_key,
    "paged": damage_kinds.paged_index,
}


class _Relations(Target):
    def __init__(self, root: Path, name: str, pattern: tuple[str, ...]) -> None:
        super().__init__(root, name)
        self._keys: dict[str, pa.Table] = {}
        for kind, make in _RELATIONS.items():
            (root / kind).mkdir(parents=True)
            make(root / kind, 1)
            with hr.Relation.open(root / kind / "r") as rel:
                self._keys[kind] = pa.Table.from_batches(rel.scan()).select(list(rel.key))
        found = (path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix in pattern)
        self.seeds = {str(path.relative_to(root)): path.read_bytes() for path in found}

    def use(self, name: str) -> None:
        kind = name.split("/")[0]
        first: HeadraceError | None = None
        for way in (self._scan, self._look_up, self._join, self._verify, self._frequencies):
            # Each opens it for itself: what one refuses, the next may follow.
            try:
                with hr.Relation.open(self.root / kind / "r") as rel:
                    way(rel, self._keys[kind])
            except HeadraceError as error:
                if str(self.root) not in str(error):
                    raise
                first = first or error
        if first is not None:
            raise first

    def _scan(self, rel: hr.Relation, keys: pa.Table) -> None:
        for batch in rel.scan():
            batch.validate()

    def _look_up(self, rel: hr.Relation, keys: pa.Table) -> None:
        if rel.key == tuple(keys.column_names):
            rel.lookup(keys).validate()

    def _join(self, rel: hr.Relation, keys: pa.Table) -> None:
        if rel.key == tuple(keys.column_names):
            on = list(rel.key)
            join = hr.semistream.AdaptiveJoin(rel, on if len(on) > 1 else on[0], "512KiB")
            for out in join.run(keys.slice(0, 50).to_batches()):
                out.validate()

    def _verify(self, rel: hr.Relation, keys: pa.Table) -> None:
        rel.verify()

    def _frequencies(self, rel: hr.Relation, keys: pa.Table) -> None:
        rel.key_frequencies()


class Manifests(_Relations):
    """Manifests of relations: JSON in which every field may be anything, and texts that are no manifest at all."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "manifest", (".json",))

    def mutate(self, random: Random, name: str, data: bytes) -> bytes:
        if random.random() < 0.1:
            return mutate_bytes(random, data, sized=True)
        with suppress(ValueError, RecursionError):
            return json.dumps(mutate_json(random, json.loads(data))).encode()
        return mutate_bytes(random, data, sized=True)

    def seal(self, name: str, data: bytes) -> bytes:
        with suppress(ValueError, RecursionError, TypeError, AttributeError):
            body = json.loads(data)
            body.pop("checksum", None)
            return json.dumps({**body, "checksum": manifest_checksum(body)}).encode()
        return data


class Pages(_Relations):
    """Pages and index pages, and the sidecars: headers, directories, offsets, bitmaps, keys, places."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "pages", (".pages", ".fences", ".index", ".filter", ".stats"))

    def mutate(self, random: Random, name: str, data: bytes) -> bytes:
        if not name.endswith((".pages", ".fences")):
            return self._mutate_sidecar(random, data)
        raw = bytearray(data)
        page = PAGE * random.randrange(max(1, len(raw) // PAGE))
        match random.randrange(4):
            case 0:  # rows, bytes in use, the directory of the columns
                _put(raw, page + random.choice((24, 28, *range(HEADER, HEADER + 32, 4))), "<I", random.choice(NUMBERS))
            case 1:  # a little more or less in the same places
                at = page + random.choice((24, 28, *range(HEADER, HEADER + 32, 4)))
                before = struct.unpack_from("<I", raw, at)[0]
                _put(raw, at, "<I", (before + random.choice((-8, -4, -1, 1, 4, 8))) & 0xFFFFFFFF)
            case 2:  # what a column begins with: offsets, keys, bitmap
                part = struct.unpack_from("<I", raw, page + HEADER + 4 * random.randrange(8))[0] % PAGE
                _put(raw, page + (part & ~3) + 4 * random.randrange(6), "<I", random.choice(NUMBERS))
            case _:
                raw[page : page + PAGE] = mutate_bytes(random, bytes(raw[page : page + PAGE]))
        return bytes(raw[: len(data)])

    def _mutate_sidecar(self, random: Random, data: bytes) -> bytes:
        """Change the arrays, or what the directory says of them."""
        length = struct.unpack_from("<Q", data, 16)[0] if len(data) >= 32 else 0
        if random.random() < 0.5 or not 0 < length < len(data):
            return data[:64] + mutate_bytes(random, data[64:])
        with suppress(ValueError, RecursionError):
            text = json.dumps(mutate_json(random, json.loads(data[32 : 32 + length]))).encode()
            room = (length + 32 + 63) // 64 * 64 - 32
            if len(text) <= room:
                return data[:16] + struct.pack("<Q", len(text)) + data[24:32] + text.ljust(room) + data[32 + room :]
        return mutate_bytes(random, data)

    def seal(self, name: str, data: bytes) -> bytes:
        good = self.seeds[name]
        raw = np.frombuffer(bytearray(data.ljust(len(good), b"\0")[: len(good)]), np.uint8)
        sound = np.frombuffer(good, np.uint8)
        if not name.endswith((".pages", ".fences")):
            raw[24:32], raw[8:16] = sound[24:32], sound[8:16]  # tag and magic: of this instance
            raw[:8] = np.array([sidecar_checksum(address(raw), raw.size)], np.uint64).view(np.uint8)
            return raw.tobytes()
        for at in range(0, raw.size, PAGE):
            raw[at + 8 : at + 24] = sound[at + 8 : at + 24]  # magic, shard and number: of this instance
            reseal(address(raw[at : at + PAGE]), PAGE)
        return raw.tobytes()


# -- run logs --------------------------------------------------------------------------------------------------------------------


class RunLogs(Target):
    """State, kept rows and facts of a run log, of a ledger, of logged joins and of samplers."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "runlog")
        self._kinds = {"log": damage_kinds.KINDS["run-log"], "ledger": damage_kinds.KINDS["ledger"]}
        self._kinds |= {"join": damage_kinds.KINDS["progressive-join"], "sampler": damage_kinds.KINDS["sampler"]}
        for name, kind in self._kinds.items():
            (root / name).mkdir(parents=True)
            kind.make(root / name, 1)
            for path in kind.paths(root / name):
                if path.suffix in (".arrow", ".json", ".parquet"):
                    self.seeds[str(path.relative_to(root))] = path.read_bytes()

    def mutate(self, random: Random, name: str, data: bytes) -> bytes:
        if name.endswith(".json"):
            with suppress(ValueError, RecursionError):
                return json.dumps(mutate_json(random, json.loads(data))).encode()
            return mutate_bytes(random, data, sized=True)
        if name.endswith(".parquet"):
            return mutate_bytes(random, data)
        stream, facts = _parts(data)
        if random.random() < 0.3:
            with suppress(ValueError, RecursionError):
                facts = json.dumps(mutate_json(random, json.loads(facts))).encode()
        else:
            stream = mutate_bytes(random, stream, sized=random.random() < 0.2)
        return stream + facts + _TAIL.pack(len(stream), len(facts), 0, b"HEADLOG1")

    def seal(self, name: str, data: bytes) -> bytes:
        if name.endswith(".json"):
            with suppress(ValueError, RecursionError, AttributeError, TypeError):
                body = json.loads(data)
                body.pop("checksum", None)
                return dump_checked(body)
            return data
        if name.endswith(".parquet"):
            at = data.rfind(_SUM_MARK)
            if at < 0:
                return data
            at += len(_SUM_MARK)
            blank = data[:at] + _NO_SUM + data[at + len(_NO_SUM) :]
            return data[:at] + b"%08x" % zlib.crc32(blank) + data[at + len(_NO_SUM) :]
        stream, facts = _parts(data)
        return stream + facts + _TAIL.pack(len(stream), len(facts), zlib.crc32(stream + facts), b"HEADLOG1")

    def use(self, name: str) -> None:
        kind = name.split("/")[0]
        self._kinds[kind].use(self.root / kind)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """The stream and the facts of a file of state, whatever it says of their sizes."""
    if len(data) < _TAIL.size:
        return data, b"{}"
    stream, facts, _, _ = _TAIL.unpack(data[-_TAIL.size :])
    body = data[: -_TAIL.size]
    return (body[:stream], body[stream:]) if stream + facts == len(body) else (body, b"{}")


TARGETS: dict[str, Callable[[Path], Target]] = {"manifest": Manifests, "pages": Pages, "runlog": RunLogs}
