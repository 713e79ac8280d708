"""Exit codes: the one place that turns whatever a command raises into a line on standard error and a code."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from typer.core import TyperGroup

from headrace.cli.screen import plain
from headrace.errors import DamagedRelation, HeadraceError, OutsideFailure, innermost, missing_extra, shown
from headrace.sources.secret import hide_secrets

DAMAGED = 1  # a relation is damaged, and nothing else
REFUSED = 2  # nothing was done: what was asked for, or what it names, is wrong
FAILED = 3  # it was begun and failed: Spark, a server, a file system, a proof
INTERRUPTED = 128 + signal.SIGINT  # as shells count a program that a signal ended
PIPE_CLOSED = 128 + signal.SIGPIPE  # the reader of standard output has gone, as in `headrace ... | head`

#: With this variable set, a failure is followed by its traceback, without secrets.
TRACEBACK = "HEADRACE_TRACEBACK"

# Spark has an exception of a worker as text only, below tracebacks of Python and of Java.
_DAMAGE = re.compile(r"headrace\.errors\.DamagedRelation: (.+)")


class ExitCodeGroup(TyperGroup):
    """The group of all commands: no exception passes it, so that every command ends with one of the codes above."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the options of `headrace` itself."""
        with exit_codes():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with exit_codes():
            return super().invoke(ctx)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn an exception into one line without secrets, and an exit code."""
    try:
        yield
    except (KeyboardInterrupt, typer.Abort) as stop:
        raise typer.Exit(INTERRUPTED) from stop
    except Exception as error:
        if hasattr(error, "exit_code"):  # an exit, or wrong usage: exceptions of the command line's own
            if (usage := wrong_usage(error)) is None:
                raise
            sys.stderr.write(f"headrace: {plain(usage)}\n")
            raise typer.Exit(REFUSED) from error
        if isinstance(error, ModuleNotFoundError):
            error = missing_extra("this command", error)
        code = exit_code(error)
        if code == PIPE_CLOSED:
            # Python would complain when it flushes standard output in the end.
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # files: the null device
        else:
            sys.stderr.write(f"headrace: {plain(message(error))}\n")
        if os.environ.get(TRACEBACK):
            sys.stderr.write(hide_secrets("".join(traceback.format_exception(error))))
        raise typer.Exit(code) from error


def wrong_usage(error: Any) -> str | None:
    """Return in one line what is wrong with what was typed, and where help is; None if nothing is, or help was asked for."""
    context = getattr(error, "ctx", None)
    if context is None or not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
        return None
    text = " ".join(str(error.format_message()).split()).removesuffix(".")
    if found := re.match(r"Invalid value for '([^']+)'(?: / '[^']+')*: ", text):
        said = text[found.end() :]
        text = f"{found[1]} {_typed(error)}cannot be taken: {said[:1].lower()}{said[1:]}"
    see = " See" if text.endswith("?") else "; see"
    return f"{text[:1].lower()}{text[1:]}{see} {context.command_path} --help"


def _typed(error: BaseException) -> str:
    """Return the value that an option refused, quoted, where Typer keeps it: in the error of the validation below its own."""
    try:
        return f"{shown(str(error.__cause__.errors()[0]['input']))} "  # type: ignore[union-attr]
    except (AttributeError, LookupError):
        return ""


def exit_code(error: BaseException) -> int:
    """Return the exit code for an exception.

    Example:
        >>> from headrace.errors import BadInput, DamagedRelation
        >>> exit_code(DamagedRelation("s0.pages", "torn")), exit_code(BadInput("no")), exit_code(OSError("disk"))
        (1, 2, 3)
    """
    if isinstance(error, DamagedRelation) or getattr(error, "damaged", False):
        return DAMAGED
    if isinstance(error, HeadraceError) and not isinstance(error, OutsideFailure):
        return REFUSED
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return PIPE_CLOSED
    return DAMAGED if _DAMAGE.search(str(error)) else FAILED


def message(error: BaseException) -> str:
    """Return what to say of an exception: our own words as they are, those of others in one line; neither with secrets.

    Example:
        >>> message(RuntimeError("no answer from postgresql://ann:hunter2@db/shop"))
        'RuntimeError: no answer from postgresql://ann:***@db/shop'
    """
    text = str(error)
    if not isinstance(error, HeadraceError):
        text = f"{type(error).__name__}: {_bottom(text)}" if not isinstance(error, OSError) else text
    return hide_secrets(text)


def _bottom(text: str) -> str:
    """Return the error that caused another program's, without plans and stacks."""
    if damage := _DAMAGE.search(text):
        return damage[1]
    return innermost(text, " ".join(text.strip().split("\n\n")[0].split("\nJVM stacktrace")[0].split()))
