"""Headrace on Spark: enrich streaming and batch DataFrames, load them exactly once, watch it. Of all packages only this one
needs pyspark; its public names are `headrace.enrich`, `headrace.load` and `headrace.progress`.
"""
