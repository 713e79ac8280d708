"""A progressive join across micro-batches, whose disk is the run log. (DESIGN D7)"""
