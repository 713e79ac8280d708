"""Samples of streams and of sliding windows, and joins over them; joins in limited memory. [PQP] ch. 8, 9, app. D"""

from headrace.sampling.approximate_join import ApproximateJoin
from headrace.sampling.chain import Chain
from headrace.sampling.expire import Expire
from headrace.sampling.fair import FairWindow
from headrace.sampling.fifo import Fifo
from headrace.sampling.reservoir import Reservoir
from headrace.sampling.sampler import Sampler
from headrace.sampling.stats import ApproximateJoinStats, SamplerStats, WindowJoinStats
from headrace.sampling.tumbling import TumblingWindow
from headrace.sampling.window_join import WindowJoin
from headrace.sampling.winres import WinRes

__all__ = [
    "ApproximateJoin",
    "ApproximateJoinStats",
    "Chain",
    "Expire",
    "FairWindow",
    "Fifo",
    "Reservoir",
    "Sampler",
    "SamplerStats",
    "TumblingWindow",
    "WinRes",
    "WindowJoin",
    "WindowJoinStats",
]
