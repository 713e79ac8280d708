"""Joins of two streams with a complete result."""
