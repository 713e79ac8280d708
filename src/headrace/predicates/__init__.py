"""Exact evaluation of join conditions on pairs of rows, shared by semi-stream and progressive joins."""

from headrace.predicates.residual import Residual

__all__ = ["Residual"]
