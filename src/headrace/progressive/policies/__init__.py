"""Flush policies: which tuples go to disk when memory is full. [PQP] §2.1, §3.1.2, ch. 4"""
