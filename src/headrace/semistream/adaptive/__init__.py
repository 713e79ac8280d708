"""AdaptiveJoin, the join behind algorithm="auto", and ConditionalJoin, which keeps the pairs that satisfy a condition.

join.py                AdaptiveJoin: the public operator, and how its parts work together
conditional.py         ConditionalJoin: wraps an AdaptiveJoin
unordered.py           execution with order="any": an online phase, and join phases for rows that wait
ordered.py             execution with order="stream": slices, each to its end
whole_table.py         a relation that fits: all tuples and their hash table; whole_table_execution.py: the join with it
eager.py               what executions have in common that join a batch to its end
lookup.py              keys of rows, found in hot set, filter and pages
page_results.py        results copied from pages in the read buffer
memory.py              the memory while the join runs
memory_plan.py         parts of fixed size; split.py: parts that move; structure_sizes.py: bytes of a row, a key, a tuple
workload.py            what the stream has shown; forecast.py: which split would take the least time
hot_set.py             the hot set; local_hot_set.py: of one process; shared_hot_set.py: of a group
keyed_store.py         tuples by key
group.py               groups of processes; group_memory.py, shared_table.py: what they share; shared_content.py: how it is
                       filled once; shared_memory.py: memory that several processes map
"""
