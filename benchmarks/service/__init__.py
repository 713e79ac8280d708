"""The service section: how many stream tuples a second every operator sustains, on simulated disks and so the same every time."""

from __future__ import annotations

from headrace.semistream import ALGORITHMS

SECTION = "service"
OURS = "adaptive"
AUTO = "auto"
FREE_INDEX = "xhj, free index"  # X-HYBRIDJOIN as its text has it: the memory of its index is not counted
PUBLISHED = tuple(name for name in ALGORITHMS if name != OURS)
SYSTEMS = (*PUBLISHED, FREE_INDEX, OURS, AUTO)
