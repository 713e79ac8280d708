"""The memory of a progressive join: both sides with their indexes, eviction, and segments spilled to disk. [PQP] §3.1"""
