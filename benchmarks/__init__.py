"""Headrace side by side with what a user would pick instead. Run `python -m benchmarks --help`."""
