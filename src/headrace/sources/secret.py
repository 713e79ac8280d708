"""SecretUrl: the URL of a server, which may hold a password and is never shown."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import BadInput
from headrace.secrets import HIDDEN as _HIDDEN
from headrace.secrets import hide_secrets, is_secret_name

__all__ = ["SecretUrl", "hide_secrets", "is_secret_name"]

ENV = "env:"
_SCHEMES = ("postgresql", "postgres")
_EXAMPLE = "'env:WAREHOUSE_URL', or a text such as 'postgresql://user@host:5432/database'"


class SecretUrl:
    """The URL of a server. `shown` is all that errors, plans and reprs show of it.

    Not a dataclass: those who print objects in their own way look into the fields of one.

    Example:
        >>> url = SecretUrl("postgresql://ann:secret@db/shop", shown="postgresql://***")
        >>> url, url.scrub("FATAL: no 'secret' here")
        (SecretUrl(postgresql://***), "FATAL: no '***' here")
    """

    def __init__(self, text: str, shown: str) -> None:
        self.text = text
        self.shown = shown

    @classmethod
    def of(cls, given: str | SecretUrl) -> SecretUrl:
        """Make one from a URL, or from "env:NAME", whose value is read now, on the driver, and sent to executors."""
        if isinstance(given, SecretUrl):
            return given
        if not isinstance(given, str) or not given:
            raise BadInput(f"url is a {type(given).__name__} of no use; give {_EXAMPLE}")
        shown, text = "postgresql://" + _HIDDEN, given
        if given.startswith(ENV):
            shown, name = given, given.removeprefix(ENV)
            if not os.environ.get(name):
                raise BadInput(f"url='{given}' names the environment variable {name!r}, which is not set; set it")
            text = os.environ[name]
        _check(text, shown)
        return cls(text, shown)

    def scrub(self, message: str) -> str:
        """Remove the URL and its secrets from a message of the server or its library."""
        for secret in sorted({self.text, *_secrets(self.text)}, key=len, reverse=True):
            message = message.replace(secret, _HIDDEN)
        return message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretUrl) and (self.text, self.shown) == (other.text, other.shown)

    def __hash__(self) -> int:
        return hash((self.text, self.shown))

    def __repr__(self) -> str:
        return f"SecretUrl({self.shown})"

    def __str__(self) -> str:
        return self.shown


def _check(text: str, shown: str) -> None:
    """Refuse a URL that libpq would parse wrongly, as its message would show the parts."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises if it is not a number
        well = parts.scheme in _SCHEMES and parts.netloc.count("@") <= 1 and "\0" not in text and not parts.fragment
    except ValueError:
        well = False
    if not well:
        raise BadInput(
            f"the url ({shown}) is not a PostgreSQL URL; give {_EXAMPLE}, and write @ : / # in a password as %40 %3A %2F %23"
        )


def _secrets(text: str) -> set[str]:
    """Return the passwords in a URL, as written and decoded."""
    parts = urlsplit(text)
    found = {parts.password or ""} | {v for k, v in parse_qsl(parts.query) if "password" in k.lower()}
    return {form for secret in found for form in (secret, unquote(secret)) if form}
