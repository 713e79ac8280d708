"""Documents of the shape of XMark's: an auction site with items, people, and open and closed auctions, made from a seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

_TEXT = (
    "mill race water wheel stone grain flour sluice gate river bank weir pond spill dam brook stream current bucket axle gear "
    "shaft timber oak iron band nail sack cart miller wharf barge rope pulley meadow willow heron otter trout reed moss frost"
)
_WORDS = _TEXT.split()
_REGIONS = ("africa", "asia", "australia", "europe", "namerica", "samerica")
# Of each hundred megabytes, as XMark has them: 21,750 items, 25,500 people, 12,000 open and 9,750 closed auctions.
_ITEMS, _PEOPLE, _OPEN, _CLOSED = 217.5e-6, 255e-6, 120e-6, 97.5e-6  # a byte


def auctions(size: int, seed: int = 1) -> Iterator[bytes]:
    """Yield a document of about `size` bytes, an entity at a time.

    Example:
        >>> document = b"".join(auctions(20_000))
        >>> 10_000 < len(document) < 40_000, document.count(b"<item "), document.count(b"<closed_auction>")
        (True, 4, 2)
    """
    rng = np.random.default_rng(seed)
    items, people, opened, closed = (max(1, round(size * share)) for share in (_ITEMS, _PEOPLE, _OPEN, _CLOSED))
    write = _Writer(rng, items, people)
    yield b'<?xml version="1.0" standalone="yes"?>\n<site>\n<regions>\n'
    for k, region in enumerate(_REGIONS):
        yield f"<{region}>\n".encode()
        for number in range(items * k // len(_REGIONS), items * (k + 1) // len(_REGIONS)):
            yield write.item(number)
        yield f"</{region}>\n".encode()
    yield b"</regions>\n<people>\n"
    for number in range(people):
        yield write.person(number)
    yield b"</people>\n<open_auctions>\n"
    for number in range(opened):
        yield write.open_auction(number)
    yield b"</open_auctions>\n<closed_auctions>\n"
    for _ in range(closed):
        yield write.closed_auction()
    yield b"</closed_auctions>\n</site>\n"


def items(count: int, seed: int = 1) -> Iterator[bytes]:
    """Yield a document of items alone, ``item0`` and so on, an item at a time.

    Example:
        >>> b"".join(items(3)).count(b"<item ")
        3
    """
    write = _Writer(np.random.default_rng(seed), count, count)
    yield b"<regions>\n"
    for number in range(count):
        yield write.item(number)
    yield b"</regions>\n"


def closed_auctions(references: Iterable[int], seed: int = 1) -> Iterator[bytes]:
    """Yield a document of closed auctions alone, each of the item with the number that is given, an auction at a time.

    Example:
        >>> b"".join(closed_auctions([5, 2])).count(b'<itemref item="item5"/>')
        1
    """
    write = _Writer(np.random.default_rng(seed), 1, 1000)
    yield b"<closed_auctions>\n"
    for number in references:
        yield write.closed_auction(number)
    yield b"</closed_auctions>\n"


class _Writer:
    """Writes entities with random contents."""

    def __init__(self, rng: np.random.Generator, items: int, people: int) -> None:
        self._rng = rng
        self._items = items
        self._people = people

    def item(self, number: int) -> bytes:
        mails = "".join(
            f"<mail>\n<from>{self._words(2)}</from>\n<to>{self._words(2)}</to>\n<date>{self._date()}</date>\n{self._text(75)}</mail>\n"
            for _ in range(self._draw(0, 3))
        )
        categories = "".join(
            f'<incategory category="category{self._draw(0, 999)}"/>\n' for _ in range(self._draw(1, 5))
        )
        return (
            f'<item id="item{number}">\n<location>{self._words(2)}</location>\n<quantity>{self._draw(1, 6)}</quantity>\n'
            f"<name>{self._words(3)}</name>\n<payment>Creditcard</payment>\n<description>\n{self._text(165)}</description>\n"
            f"<shipping>Will ship internationally</shipping>\n{categories}<mailbox>\n{mails}</mailbox>\n</item>\n"
        ).encode()

    def person(self, number: int) -> bytes:
        interests = "".join(f'<interest category="category{self._draw(0, 999)}"/>\n' for _ in range(self._draw(0, 5)))
        watches = "".join(
            f'<watch open_auction="open_auction{self._draw(0, 9999)}"/>\n' for _ in range(self._draw(0, 6))
        )
        return (
            f'<person id="person{number}">\n<name>{self._words(2)}</name>\n'
            f"<emailaddress>mailto:{self._words(1)}@example.org</emailaddress>\n"
            f"<phone>+{self._draw(1, 99)} ({self._draw(10, 999)}) {self._draw(10_000, 99_999_999)}</phone>\n"
            f"<address>\n<street>{self._draw(1, 99)} {self._words(1)} St</street>\n<city>{self._words(1)}</city>\n"
            f"<country>{self._words(1)}</country>\n<zipcode>{self._draw(1, 99)}</zipcode>\n</address>\n"
            f'<profile income="{self._price()}">\n{interests}'
            "<education>Graduate School</education>\n<business>Yes</business>\n</profile>\n"
            f"<watches>\n{watches}</watches>\n</person>\n"
        ).encode()

    def open_auction(self, number: int) -> bytes:
        bidders = "".join(
            f"<bidder>\n<date>{self._date()}</date>\n<time>{self._draw(10, 23)}:{self._draw(10, 59)}:00</time>\n"
            f"{self._personref()}<increase>{self._price()}</increase>\n</bidder>\n"
            for _ in range(self._draw(0, 8))
        )
        return (
            f'<open_auction id="open_auction{number}">\n<initial>{self._price()}</initial>\n{bidders}'
            f"<current>{self._price()}</current>\n"
            f'{self._itemref()}<seller person="person{self._draw(0, self._people - 1)}"/>\n{self._annotation()}'
            f"<quantity>{self._draw(1, 6)}</quantity>\n<type>Regular</type>\n"
            f"<interval>\n<start>{self._date()}</start>\n<end>{self._date()}</end>\n</interval>\n</open_auction>\n"
        ).encode()

    def closed_auction(self, item: int | None = None) -> bytes:
        return (
            f'<closed_auction>\n<seller person="person{self._draw(0, self._people - 1)}"/>\n'
            f'<buyer person="person{self._draw(0, self._people - 1)}"/>\n{self._itemref(item)}<price>{self._price()}</price>\n'
            f"<date>{self._date()}</date>\n<quantity>{self._draw(1, 6)}</quantity>\n<type>Regular</type>\n{self._annotation()}"
            "</closed_auction>\n"
        ).encode()

    def _annotation(self) -> str:
        author = f'<author person="person{self._draw(0, self._people - 1)}"/>'
        happiness = f"<happiness>{self._draw(1, 10)}</happiness>"
        return f"<annotation>\n{author}\n<description>\n{self._text(135)}</description>\n{happiness}\n</annotation>\n"

    def _itemref(self, item: int | None = None) -> str:
        return f'<itemref item="item{self._draw(0, self._items - 1) if item is None else item}"/>\n'

    def _personref(self) -> str:
        return f'<personref person="person{self._draw(0, self._people - 1)}"/>\n'

    def _text(self, words: int) -> str:
        """Mixed content: words, some of them emphasised."""
        a, b, c = (self._words(self._draw(words // 6, words // 2)) for _ in range(3))
        return f"<text>\n{a} <keyword>{self._words(2)}</keyword> {b} <emph>{self._words(1)}</emph> {c}\n</text>\n"

    def _words(self, count: int) -> str:
        return " ".join([_WORDS[k] for k in self._rng.integers(0, len(_WORDS), count).tolist()])

    def _date(self) -> str:
        return f"{self._draw(10, 12)}/{self._draw(10, 28)}/{self._draw(1998, 2001)}"

    def _price(self) -> str:
        return f"{self._draw(100, 49_999) / 100:.2f}"

    def _draw(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high, endpoint=True))
