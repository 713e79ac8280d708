"""Partitionings divide tuples by key, box or vector, so that only corresponding partitions need to be joined. [PQP] ch. 4-6"""
