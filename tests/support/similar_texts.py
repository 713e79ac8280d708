"""Random texts that are often near each other, and their similarity in plain Python."""

from __future__ import annotations

from random import Random

LETTERS = "aabbcde é€ß👍"  # few, and of one to four bytes: texts are often alike


def random_text(random: Random, least: int = 0, most: int = 12, *, near: str | None = None) -> str:
    """Return a random text; or another one with a few random edits."""
    if near is None:
        return "".join(random.choice(LETTERS) for _ in range(random.randint(least, most)))
    letters = list(near)
    for _ in range(random.randint(0, 3)):
        at = random.randint(0, len(letters))
        letters[at : at + random.randint(0, 1)] = [random.choice(LETTERS)] * random.randint(0, 1)
    return "".join(letters)


def random_texts(random: Random, count: int, *, nulls: float = 0.1) -> list[str | None]:
    """Return texts of which many are near others, some equal, some empty, some null."""
    base = [random_text(random) for _ in range(max(1, count // 5))]
    texts = [
        random.choice(base) if random.random() < 0.2 else random_text(random, near=random.choice(base))
        for _ in range(count)
    ]
    return [None if random.random() < nulls else text for text in texts]


def edits(a: str, b: str) -> int:
    """Return the Levenshtein distance in code points."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        above, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            above, row[j + 1] = row[j + 1], min(row[j + 1] + 1, row[j] + 1, above + (x != y))
    return row[-1]


def grams(text: str, q: int) -> set[str]:
    """Return the q-grams of a text; a shorter text is its own, and the empty one has none."""
    return {text[i : i + q] for i in range(max(1, len(text) - q + 1))} - {""}


def similarity(a: str, b: str, q: int) -> float:
    """Return the Jaccard similarity of the q-grams of two texts."""
    x, y = grams(a, q), grams(b, q)
    return len(x & y) / len(x | y) if x | y else 1.0
