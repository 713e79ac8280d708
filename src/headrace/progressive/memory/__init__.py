"""The memory of a progressive join: both sides, their indexes, and what is spilled to disk. [PQP] §3.1"""
