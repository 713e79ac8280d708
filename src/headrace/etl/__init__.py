"""Transformations of a warehouse's load, on Spark: surrogate keys, duplicates, differences of snapshots, a relation that a stream
maintains. Built on `headrace.spark`; the public names are `headrace.assign_surrogate_keys`, `find_duplicates`, `snapshot_diff` and
`maintain`.
"""
