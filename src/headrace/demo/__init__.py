"""The demonstration: a retail warehouse, fed by a bursty stream of sales, that proves what it loaded.

    products  a million of them, from two sources, as a `Relation`
    sales     sale i is a function of (seed, i), made on the executors when it arrives
    job       sales → enrich with products → line totals → a Delta table, exactly once
    proof     the table against the generator: every row, every sum, every sale once

`headrace demo` runs it.
"""
