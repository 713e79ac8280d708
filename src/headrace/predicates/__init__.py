"""Conditions asked of pairs of rows, exactly: what both families of joins share."""

from headrace.predicates.residual import Residual

__all__ = ["Residual"]
