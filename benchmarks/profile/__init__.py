"""Where a row's nanoseconds go: `python -m benchmarks profile` samples the core cell, makes a table and a flame graph."""
