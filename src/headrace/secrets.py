"""Secrets in texts: the one place that says what is a secret, and removes it from messages, plans, logs and notes.

What Headrace itself is given as a secret (the URL of a server, a value of the environment) is an object that shows none of it;
this is for texts of others, and for values that were not meant to hold one.
"""

from __future__ import annotations

import re

HIDDEN = "***"
# A name that a value is secret by, as one word or as the end of one: password, sslpassword, fs.s3a.secret.key, auth_token.
_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|signature|sig"
    r"|(?:api|access|account|private|shared|storage)[-_.]?key|secret[-_.]?access[-_.]?key|secret[-_.]?key|jaas[-_.]?config)"
)
_SECRET_NAME = re.compile(rf"(?:^|.*[^a-z]|.*ssl){_NAME}$", re.IGNORECASE)
# These begin with fixed characters, and not with a name of any length: that would take quadratic time in long texts.
_IN_URL = re.compile(r"(://[^\s:/@?#\"']*):[^\s/\"']+@")
_GIVEN = re.compile(
    # name=value, name: value, "name": "value", name="value"; a value in quotes ends with its quote.
    rf"(?:(?<![a-z])|(?<=ssl))({_NAME})([\"']?\s*[=:]\s*)"
    r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s&;,\"'})\]]+)",
    re.IGNORECASE,
)
_IN_QUERY = re.compile(rf"([?&](?:[^\s?=&\"']*[^a-z\s?=&\"'])?{_NAME}=)[^\s&#\"']+", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}")


def hide_secrets(text: str) -> str:
    """Remove passwords, tokens and keys from a text: those in URLs, and values of options that are named as secrets.

    Example:
        >>> hide_secrets("jdbc:postgresql://ann:pw@db/shop?user=ann&password=pw refused; sasl.password = 'pw'")
        "jdbc:postgresql://ann:***@db/shop?user=ann&password=*** refused; sasl.password = '***'"
    """
    text = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    text = _GIVEN.sub(lambda found: found[1] + found[2] + _quoted_as(found[3]), text)
    return _BEARER.sub(rf"\1 {HIDDEN}", text)


def hide_in_urls(text: str) -> str:
    """Remove passwords, tokens and keys from URLs alone: for texts in which a word such as token need not mean a secret.

    Example:
        >>> hide_in_urls("token: 's3a://AKIA:k3y@bucket/t?X-Amz-Signature=f00'")
        "token: 's3a://AKIA:***@bucket/t?X-Amz-Signature=***'"
    """
    return _IN_QUERY.sub(rf"\1{HIDDEN}", _IN_URL.sub(rf"\1:{HIDDEN}@", text))


def is_secret_name(name: str) -> bool:
    """Whether an option of this name has a secret as its value.

    Example:
        >>> [is_secret_name(name) for name in ("fs.s3a.secret.key", "sasl.jaas.config", "key", "compass")]
        [True, True, False, False]
    """
    return _SECRET_NAME.match(name) is not None


def _quoted_as(value: str) -> str:
    quote = value[0] if value[0] in "\"'" else ""
    return f"{quote}{HIDDEN}{quote}"
