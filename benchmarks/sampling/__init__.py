"""The sampling section of the benchmarks: samplers of windows, and window joins beside exact ones."""

from __future__ import annotations

SECTION = "sampling"
SAMPLERS = ("Reservoir", "Fifo", "Expire", "WinRes", "FairWindow", "Chain")
SHARE = 0.1  # of a window that is kept
CHAINS = 100  # samples of Chain over a window by time, where it takes a step for each of them and each tuple
ESTIMATED = 256  # bytes of memory for a tuple of the windows, with which a join that estimates keeps them all, roughly
COVERED = 4_000  # windows: of 1,000 the part that is covered differs by 0.7% by chance alone, of 4,000 by half of that
