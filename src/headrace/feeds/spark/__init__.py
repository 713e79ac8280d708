"""Feeds on Spark: the source `rss`, and SQL over it on joins of streams, for a desk that outgrows one machine."""
