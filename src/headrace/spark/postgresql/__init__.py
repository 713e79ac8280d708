"""PostgreSQL as a source and as a sink of Spark."""
