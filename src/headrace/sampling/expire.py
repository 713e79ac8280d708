"""Expire: a fair sample of a sliding window, whose tuples are replaced when they expire. [PQP] §9.3.3, Alg. 12"""

from __future__ import annotations

import numpy as np

from headrace.arrays import Int32s, Int64s
from headrace.kernels import samplers as kernels
from headrace.sampling.arriving import Arriving
from headrace.sampling.slot_sampler import SlotSampler
from headrace.windows import TimeWindow


class Expire(SlotSampler):
    """A random sample of the window, each tuple with the same probability; but periodic: choose it where data has no period.

        stream  . x . . x x . .|. x . . x x . .|. x . . x        every |W|-th place is kept again and again

    The first window is sampled as a reservoir. Then a tuple enters just if one of the sample expires, whose position it
    takes. So of two tuples that are |W| apart either both are in the sample in their time, or none is: data with a period
    that divides |W| may show one phase only.

    Parameters
    ----------
    size, window, memory, seed, stream
        See Sampler.

    Windows by time: several tuples may expire at once, and a stream may become faster or slower. Then a tuple enters a free
    position with probability |S| / |W|, where |W| is the number of live tuples, so the sample may be smaller than `size`.
    Tuples of a stream that has become faster are too few in it until the slower time has left the window. The sample is a
    reservoir until the first tuple expires.

    Example
    -------
    >>> import headrace as hr, pyarrow as pa
    >>> from headrace.sampling import Expire
    >>> s = Expire(size=2, window=hr.rows(5), seed=1)
    >>> s.insert(pa.record_batch({"x": list(range(100))}))
    >>> (np.asarray(s.sample()["x"]) >= 95).tolist()
    [True, True]

    Reference: [PQP] Alg. 12; Babcock, Datar, Motwani, SODA 2002.

    Deviations: the first window is sampled with rho in 1..n, as the prose says; the algorithm, which has 1..|W|, would sample
    it unevenly for ever. The text compares with < where <= is meant, and says the period was n.
    """

    @property
    def simple_random(self) -> bool:
        """Whether every set of live tuples is the sample with the same probability: in windows by sequence."""
        return not isinstance(self.window, TimeWindow)

    def _decide(self, arriving: Arriving) -> tuple[Int64s, Int32s]:
        by_time = isinstance(self.window, TimeWindow)
        refill = arriving.live if by_time else np.ones(arriving.live.size, np.int64)
        return self._decide_by_expiry(kernels.expire, arriving, refill)
