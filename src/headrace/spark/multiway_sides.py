"""MultiWaySides: several streams and how they are joined, as they travel to the executors."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.progressive.logged.multiway_spec import MultiWaySpec


@dataclass(frozen=True, kw_only=True)
class MultiWaySides:
    """Several streams that `multiway_join` joins. See MultiWaySpec."""

    on: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    suffix: str | None
    partitions: int
    probing: str
    selectivity: tuple[float, ...] | None
    fade: int | None
    static: tuple[bool, ...]

    def pairing(self) -> MultiWaySpec:
        """The join of them."""
        return MultiWaySpec(
            on=self.on,
            schemas=self.schemas,
            partitions=self.partitions,
            probing=self.probing,
            selectivity=self.selectivity,
            fade=self.fade,
            suffix=self.suffix,
            static=self.static,
        )
