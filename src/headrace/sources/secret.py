"""Secrets: a URL that may hold a password and is never shown, and the removal of secrets from messages of other programs."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import BadInput

ENV = "env:"
_SCHEMES = ("postgresql", "postgres")
_EXAMPLE = "'env:WAREHOUSE_URL', or a text such as 'postgresql://user@host:5432/database'"
_HIDDEN = "***"
# A name that a value is secret by, as one word or as the end of one: password, sslpassword, fs.s3a.secret.key, auth_token.
_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|signature|sig"
    r"|(?:api|access|account|private|shared|storage)[-_.]?key|secret[-_.]?access[-_.]?key|secret[-_.]?key)"
)
_SECRET_NAME = re.compile(rf"(?:^|.*[^a-z]|.*ssl){_NAME}$", re.IGNORECASE)
# Both begin with fixed characters, and not with a name of any length: that would take quadratic time in long texts.
_IN_URL = re.compile(r"(://[^\s:/@?#\"']*):[^\s/\"']+@")
_GIVEN = re.compile(
    # name=value, name: value, "name": "value", name="value"; a value in quotes ends with its quote.
    rf"(?:(?<![a-z])|(?<=ssl))({_NAME})([\"']?\s*[=:]\s*)"
    r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s&;,\"'})\]]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}")


def hide_secrets(text: str) -> str:
    """Remove passwords, tokens and keys from a text: those in URLs, and values of options that are named as secrets.

    Example:
        >>> hide_secrets("jdbc:postgresql://ann:pw@db/shop?user=ann&password=pw refused; sasl.password = 'pw'")
        "jdbc:postgresql://ann:***@db/shop?user=ann&password=*** refused; sasl.password = '***'"
    """
    text = _IN_URL.sub(rf"\1:{_HIDDEN}@", text)
    text = _GIVEN.sub(lambda found: found[1] + found[2] + _quoted_as(found[3]), text)
    return _BEARER.sub(rf"\1 {_HIDDEN}", text)


def is_secret_name(name: str) -> bool:
    """Whether an option of this name has a secret as its value.

    Example:
        >>> [is_secret_name(name) for name in ("fs.s3a.secret.key", "sslpassword", "key", "partition_by", "compass")]
        [True, True, False, False, False]
    """
    return _SECRET_NAME.match(name) is not None


def _quoted_as(value: str) -> str:
    quote = value[0] if value[0] in "\"'" else ""
    return f"{quote}{_HIDDEN}{quote}"


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
