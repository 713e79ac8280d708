"""Numba kernels: arrays in, arrays out, no I/O, no Python objects."""
