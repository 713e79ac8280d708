"""Samples of streams and of sliding windows, and joins over them. [PQP] ch. 9, app. D"""

from headrace.sampling.chain import Chain
from headrace.sampling.expire import Expire
from headrace.sampling.fair import FairWindow
from headrace.sampling.fifo import Fifo
from headrace.sampling.reservoir import Reservoir
from headrace.sampling.sampler import Sampler
from headrace.sampling.stats import SamplerStats, WindowJoinStats
from headrace.sampling.window_join import WindowJoin
from headrace.sampling.winres import WinRes

__all__ = [
    "Chain",
    "Expire",
    "FairWindow",
    "Fifo",
    "Reservoir",
    "Sampler",
    "SamplerStats",
    "WinRes",
    "WindowJoin",
    "WindowJoinStats",
]
