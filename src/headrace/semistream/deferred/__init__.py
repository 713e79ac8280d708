"""Semi-stream joins across micro-batches: deadlines, retries and dead letters, kept in the run log. (DESIGN D7)"""
