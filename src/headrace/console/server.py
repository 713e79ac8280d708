"""Serving the console: where it listens, and how it stops."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from headrace.console.app import Console
from headrace.console.guard import is_loopback
from headrace.errors import BadInput, OutsideFailure
from headrace.files import is_file

STALLED = 30  # seconds that a client may leave sent bytes unread before its connection is dropped
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE = 2  # seconds for answers under way when the server stops
_BACKLOG = (
    1024  # connections that wait to be taken: as many pages may come back at once when the server is started again
)


@dataclass(frozen=True)
class Listening:
    """Where the server listens, and how it proves who it is.

    Args:
        host: the address; others than loopback need a certificate, or `insecure`.
        port: the port, or 0 for a free one.
        certificate: the file of a TLS certificate, with its chain.
        key: the file of its key.
        insecure: lets other machines come without TLS: token and results can be read on the way.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise BadInput("TLS needs both files: give --certificate and --key")
        if not is_loopback(self.host) and self.certificate is None and not self.insecure:
            raise BadInput(
                f"{self.host} can be reached from other machines, which would see the token and all results on the way; "
                "give --certificate and --key for TLS, or --insecure if you mean it"
            )
        for file in (self.certificate, self.key):
            if file is not None and not is_file(file):
                raise BadInput(f"there is no file {file}")

    def bind(self) -> socket.socket:
        """Open the port."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port))
        except OSError as error:
            listener.close()
            raise OutsideFailure(
                f"cannot listen on {self.host}, port {self.port}: {error.strerror}; give another --port"
            ) from error
        listener.listen(_BACKLOG)
        return listener

    def address(self, listener: socket.socket, token: str) -> str:
        """The address to open, with the token after #, which browsers keep to themselves."""
        scheme = "https" if self.certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{listener.getsockname()[1]}/#token={token}"


class ConsoleServer(uvicorn.Server):
    """Serves a console. When it is told to stop it ends the streams of events first: they would never end by themselves.

    Args:
        console: what is served.
        listening: where, and with which certificate.
        stalled: seconds that a client may leave sent bytes unread.
    """

    def __init__(self, console: Console, listening: Listening, *, stalled: int = STALLED) -> None:
        super().__init__(
            uvicorn.Config(
                console.app,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE,
                ssl_certfile=listening.certificate,
                ssl_keyfile=listening.key,
            )
        )
        self.console = console
        self.stalled = stalled
        self._loop: asyncio.AbstractEventLoop | None = None
        console.on_failure = self.stop

    def serve_on(self, listener: socket.socket) -> None:
        """Serve until told to stop (Ctrl-C, SIGTERM); raises what ended the desk, if something did."""
        # The kernel drops who does not read: nothing here has to keep watch on a thousand sockets. Accepted sockets inherit it.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.stalled * 1000)
        self.run(sockets=[listener])
        if self.console.failure is not None:
            raise self.console.failure

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve in the running event loop."""
        self._loop = asyncio.get_running_loop()
        try:
            await super().serve(sockets)
        finally:
            self._loop = None

    def stop(self) -> None:
        """End the streams and then the server; from any thread."""
        self.should_exit = True
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self.console.broadcast.close)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM stop the server. They are not raised again afterwards, as uvicorn does: this is how it ends."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
