"""Lines and columns of bytes that come in pieces."""

import re
from bisect import bisect_right

import numpy as np

from headrace.xml.place import Place


def test_oracle_places_are_those_of_the_whole_text():
    rng = np.random.default_rng(9)
    for number in range(200):
        signs = "ab\né" if number % 2 else "a\r\né"
        text = "".join(rng.choice(list(signs), 40, p=[0.6, 0.15, 0.1, 0.15]))
        starts = [0, *(ending.end() for ending in re.finditer(r"\r\n|\r|\n", text))]
        size = int(rng.integers(1, 20))
        buffer = bytearray(200)
        place = Place(buffer)
        for at in range(0, len(text), size):
            piece = (text + "x")[at : at + size + 1].encode()
            buffer[: len(piece)] = piece
            for k in range(at, min(at + size, len(text))):
                line = bisect_right(starts, k)
                assert place.at(len(text[at:k].encode())) == (line, k - starts[line - 1] + 1), (text, k, size)
            place.advance(len(text[at : at + size].encode()))
