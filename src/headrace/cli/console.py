"""``headrace console``: the feed desk in a browser, served from this machine."""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import FLAG, SIZE
from headrace.cli.screen import plain
from headrace.files import scratch_directory

_TOKEN = "HEADRACE_CONSOLE_TOKEN"  # so that pages which are open still work when the server is started again
_TOKEN_BYTES = 24


def console(
    demo: Annotated[
        bool, typer.Option("--demo", metavar=FLAG, help="Replay a recorded day of earthquakes, alerts and places.")
    ] = False,
    minutes: Annotated[float, typer.Option(help="How long the recorded day takes.")] = 10.0,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where queries and results are kept.",
            show_default="feeds in the state directory; --demo: nowhere",
        ),
    ] = None,
    memory: Annotated[str, typer.Option(metavar=SIZE, help="The budget of each query.")] = "64MiB",
    interval: Annotated[str, typer.Option(help="How often feeds are pulled.")] = "60s",
    allow_private: Annotated[
        bool,
        typer.Option(
            "--allow-private", metavar=FLAG, help="Let queries name feeds of this machine and of private networks."
        ),
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on; others than loopback need TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8640,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The TLS certificate, with its chain.")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.")] = None,
    name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name of this server, beside localhost; may be repeated.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", metavar=FLAG, help="Let other machines come without TLS.")
    ] = False,
) -> None:
    """Write SQL over feeds in a browser and see results come, in a reader and on a map.

    Prints the address to open. Its token lets a page change things; whoever has the address without it can only watch.
    Ctrl-C stops the server; queries and results stay.
    """
    from headrace.errors import BadInput, missing_extra
    from headrace.units import parse_size

    parse_size(memory, name="memory")  # before a query needs it
    if not 0 < minutes < float("inf"):
        raise BadInput(f"minutes={minutes:g} is no time for the recorded day; give more than 0")
    try:
        from headrace.console.app import Console
        from headrace.console.guard import is_loopback
        from headrace.console.opening import open_demo, open_desk
        from headrace.console.server import ConsoleServer, Listening
    except ModuleNotFoundError as error:
        raise missing_extra("the console", error, "console") from error
    from headrace.paths import feeds_directory

    listening = Listening(host, port, certificate, key, insecure)
    token = os.environ.get(_TOKEN) or secrets.token_urlsafe(_TOKEN_BYTES)
    passing = scratch_directory("headrace-demo-") if demo and state is None else nullcontext(state)
    with passing as given:
        place = Path(given) if given is not None else feeds_directory()
        if demo:
            opened = open_demo(place, seconds=minutes * 60, memory=memory)
        else:
            opened = open_desk(place, memory=memory, interval=interval, allow_private=allow_private)
        made = Console(
            opened.room,
            token=token,
            clock=opened.clock,
            recorded=opened.recorded,
            names=name or (),
            by_address=not is_loopback(host),
        )
        with listening.bind() as listener:
            if made.missing:
                sys.stderr.write(
                    f"Missing: {', '.join(made.missing)}. There is no map or curve until make setup has run.\n"
                )
            sys.stdout.write(f"Open {plain(listening.address(listener, token))}\n")
            sys.stdout.flush()
            ConsoleServer(made, listening).serve_on(listener)
