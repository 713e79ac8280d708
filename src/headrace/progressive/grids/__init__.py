"""Partitionings: how tuples of keys, boxes and vectors are divided so that only corresponding parts meet. [PQP] ch. 4-6"""
