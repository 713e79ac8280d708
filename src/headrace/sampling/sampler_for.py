"""Samplers by the names of their methods."""

from __future__ import annotations

from typing import Any, Literal

from headrace.errors import choice
from headrace.sampling.chain import Chain
from headrace.sampling.expire import Expire
from headrace.sampling.fair import FairWindow
from headrace.sampling.fifo import Fifo
from headrace.sampling.reservoir import Reservoir
from headrace.sampling.sampler import Sampler
from headrace.sampling.winres import WinRes
from headrace.windows import Window

SampleMethod = Literal["fair", "expire", "winres", "reservoir", "fifo", "chain"]
_SAMPLERS: dict[str, type[Sampler]] = {
    "fair": FairWindow,
    "expire": Expire,
    "winres": WinRes,
    "reservoir": Reservoir,
    "fifo": Fifo,
    "chain": Chain,
}


def default_method(window: Window | None) -> SampleMethod:
    """The method that samples a window, or a whole stream, as a simple random sample."""
    return "reservoir" if window is None else "fair"


def sampler_for(method: SampleMethod, **arguments: Any) -> Sampler:
    """Make the sampler of a method, with the arguments of `Sampler`."""
    return _SAMPLERS[choice("method", method, tuple(_SAMPLERS))](**arguments)
