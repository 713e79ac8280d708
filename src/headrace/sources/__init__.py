"""Where rows come from and go to besides Spark's own: PostgreSQL through ADBC, Delta tables by version. No Spark in here."""
