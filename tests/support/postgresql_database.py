"""A PostgreSQL database of a test's own."""


class Database:
    """A database of a test's own."""

    def __init__(self, server, name: str) -> None:
        self.server, self.name, self.url = server, name, server.url(name)

    def query(self, sql: str) -> str:
        """What psql prints: a line a row, | between values."""
        return self.server.query(sql, database=self.name)

    def rows(self, sql: str) -> list[list[str]]:
        return [line.split("|") for line in self.query(sql).splitlines()]
