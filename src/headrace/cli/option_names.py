"""Errors in the words of the command line: the library says ``memory='lots'``, and a command's user typed ``--memory lots``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperCommand

from headrace.errors import HeadraceError

_VALUE = r"(True|'[^']*'|\"[^\"]*\"|[^\s,;:()]+)"
_ALWAYS = {"Relation.create": "headrace relation create"}  # what the library says of its functions
_ONE_WORD = re.compile(r"'([\w.%/-]+)'")  # a value that a shell takes without quotes


class OptionNamesCommand(TyperCommand):
    """A command whose errors name its options and arguments, whatever the library calls these."""

    others: ClassVar[Mapping[str, str]] = {}  # what the library says besides, and the option for it

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            error.args = (in_options(str(error), option_names(self), self.others),)
            raise


def option_names_command(others: Mapping[str, str]) -> type[OptionNamesCommand]:
    """Return a class of commands whose library calls an option by another name: ``{"within_time": "--within"}``.

    A name may have a value or a word after it: ``{"null_keys='drop'": "--drop-null-keys", "key names": "--key names"}``.
    """
    return type("OptionNamesCommand", (OptionNamesCommand,), {"others": others})


def option_names(command: TyperCommand) -> dict[str, str]:
    """Return how the parameters of a command are typed, by the names that Python has for them."""
    names = {}
    for param in command.params:
        if param.param_type_name == "argument":
            shown = re.sub(r"[^\w]", "", param.metavar or param.name or "")
        else:
            shown = max(param.opts, key=len)
            names[shown.lstrip("-").replace("-", "_")] = shown
        names[str(param.name)] = shown
    return names


def in_options(text: str, names: Mapping[str, str], others: Mapping[str, str] | None = None) -> str:
    """Return an error with options in place of the library's arguments.

    The value that is wrong comes first and stays quoted; values to give instead are written as they are typed.

    Example:
        >>> names = {"memory": "--memory", "order": "--order", "overwrite": "--overwrite"}
        >>> in_options("memory='a lot' is not a size; give '64MiB'", names)
        "--memory 'a lot' is not a size; give '64MiB'"
        >>> in_options("r exists; pass overwrite=True to replace it", names)
        'r exists; pass --overwrite to replace it'
        >>> in_options("frequencies is given; pass order='frequency'", names)
        'frequencies is given; pass --order frequency'
    """
    known = dict(names)
    for said, option in {**_ALWAYS, **(others or {})}.items():
        if said.isidentifier():
            known[said] = option
        else:
            text = re.sub(rf"(?<![\w.-]){re.escape(said)}(?!\w)", option, text)
    if not known:
        return text
    words = "|".join(sorted(map(re.escape, known), key=len, reverse=True))

    def typed(found: re.Match[str]) -> str:
        option, value = known[found[1]], found[2]
        if value == "True":
            return option
        return f"{option} {value}" if found.start() == 0 else f"{option} {_ONE_WORD.sub(lambda word: word[1], value)}"

    return re.sub(rf"(?<![\w.'\"=-])({words})={_VALUE}", typed, text)
