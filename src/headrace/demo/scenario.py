"""Scenario: the parameters of a demonstration, which determine every product, every sale and every arrival."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from headrace.errors import BadInput

MOST_PRODUCTS = 20_000_000  # the table of Zipf's distribution takes 8 bytes per product in every process
MOST_SALES = 2_000_000_000  # the check for duplicates takes one bit of memory per sale

_RANGES: dict[str, tuple[float, float, str]] = {
    "rate": (1, 10_000_000, "sales a second"),
    "seconds": (1, 86_400, "seconds"),
    "products": (1, MOST_PRODUCTS, "products"),
    "skew": (0, 4, "as the exponent of Zipf's distribution (0 is uniform)"),
    "seed": (0, 2**32 - 1, "as a seed"),
}


@dataclass(frozen=True)
class Scenario:
    """The stream and the products of one demonstration.

    Args:
        rate: mean sales a second.
        seconds: the duration over which sales arrive.
        products: the number of products.
        skew: exponent of Zipf's distribution over products; 0 is uniform.
        seed: determines all random choices.

    Example:
        >>> Scenario(rate=1000, seconds=2).sales
        2000
        >>> Scenario(rate=0)
        Traceback (most recent call last):
        ...
        headrace.errors.BadInput: rate=0 is out of range; give 1 to 10000000 sales a second (60000 if left out)
    """

    rate: int = 60_000
    seconds: float = 40.0
    products: int = 1_000_000
    skew: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name, (low, high, unit) in _RANGES.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                usual = f"{getattr(Scenario, name):g}" if name != "products" else Scenario.products
                raise BadInput(f"{name}={value!r} is out of range; give {low} to {high} {unit} ({usual} if left out)")
        if self.sales > MOST_SALES:
            raise BadInput(
                f"rate={self.rate} for seconds={self.seconds:g} makes {self.sales} sales; give a rate or seconds that make"
                f" {MOST_SALES} or fewer"
            )

    @property
    def sales(self) -> int:
        """The total number of sales."""
        return max(1, round(self.rate * self.seconds))

    def as_dict(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return asdict(self)
