"""MESHJOIN and its variants: one cyclic scan of the relation, shared by all waiting stream tuples. [MESH], [DEF]"""
