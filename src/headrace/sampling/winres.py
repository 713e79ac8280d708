"""WinRes: a sample of a sliding window that leans towards recent tuples. [PQP] §9.3.5, Alg. 13"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from headrace.arrays import Int32s, Int64s
from headrace.errors import choice
from headrace.kernels import samplers as kernels
from headrace.sampling.arriving import Arriving
from headrace.sampling.slot_sampler import SlotSampler
from headrace.windows import RowWindow


class WinRes(SlotSampler):
    """A sample of the window that is never periodic, and leans towards recent tuples.

        stream  . . x . . . . x . . x . x . x x . x        the older, the fewer

    A tuple takes the position of one that has expired; if there is none, it takes a random one of 1..|W|, or is dropped. So
    tuples enter more often than a fair sample would let them: with |S| = 0.2 |W| the youngest tenth of the window has 14% of
    the sample and the oldest 7%.

    Parameters
    ----------
    size, window, memory, seed, stream
        See Sampler.
    draw
        "window" draws from 1..|W|, as the algorithm does. "stream" draws from 1..n, as the prose has it: the longer the
        stream, the fairer and the more like Expire, with its period.

    Windows by time: several tuples may expire at once; the next tuples take their positions. |W| is the number of live tuples.

    Example
    -------
    >>> import headrace as hr, pyarrow as pa
    >>> from headrace.sampling import WinRes
    >>> s = WinRes(size=2, window=hr.rows(5), seed=1)
    >>> s.insert(pa.record_batch({"x": list(range(100))}))
    >>> (np.asarray(s.sample()["x"]) >= 95).tolist()
    [True, True]

    Reference: [PQP] Alg. 13.

    Deviations: the text compares with < where <= is meant; its prose replaces "if rho < n", which no position satisfies.
    """

    def __init__(
        self, size: int | None = None, *, draw: Literal["window", "stream"] = "window", **arguments: Any
    ) -> None:
        super().__init__(size, **arguments)
        self.draw = choice("draw", draw, ("window", "stream"))

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, draw={self.draw!r})"

    def _decide(self, arriving: Arriving) -> tuple[Int64s, Int32s]:
        if self.draw == "stream":
            bounds = np.arange(arriving.first + 1, arriving.first + arriving.clock.size + 1)
        elif isinstance(self.window, RowWindow):
            bounds = np.full(arriving.clock.size, self.window.size)
        else:
            bounds = arriving.live
        return self._decide_by_expiry(kernels.winres, arriving, bounds)
