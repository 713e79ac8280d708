"""What joins on Spark remember across micro-batches: run logs by shard, heartbeats, pinned versions. (DESIGN D7, D9)"""
