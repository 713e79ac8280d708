"""The server's routes: pages, assets, the desk's queries and feeds, and the stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import headrace
from headrace.clock import Clock
from headrace.console import assets
from headrace.console.events import MOST_CLIENTS, Broadcast, read_position
from headrace.console.guard import Guard
from headrace.console.room import FeedRoom, UnknownQuery, mistake
from headrace.errors import BadInput, HeadraceError, shown
from headrace.feeds.result_feed import Format
from headrace.feeds.sql.mistakes import BadQuery

MOST_BODY = 1 << 18  # bytes of a request: a query of 256 KiB is none that a person wrote
MOST_ROWS = 1000  # results in an answer
PAGES = Path(__file__).parent / "pages"
_FORMATS: dict[str, tuple[Format, str]] = {
    "rss": ("rss", "application/rss+xml"),
    "atom": ("atom", "application/atom+xml"),
    "json": ("json", "application/feed+json"),
}


class Console:
    """The feed desk as a web application.

    Args:
        room: the desk.
        token: what requests that change something must have.
        clock: gives the moment to the pages; that of a recorded day in the demonstration.
        recorded: what the pages say of a recorded day, or nothing.
        names: names of the server beside localhost.
        by_address: whether it may be asked by any address in digits.
        place: the directory of third-party files.
    """

    def __init__(
        self,
        room: FeedRoom,
        *,
        token: str,
        clock: Clock,
        recorded: dict[str, Any] | None = None,
        names: Iterable[str] = (),
        by_address: bool = False,
        place: Path = assets.PLACE,
    ) -> None:
        self.room = room
        self.broadcast = Broadcast(room, clock)
        self.recorded = recorded
        self.missing = assets.missing(place)
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.app = Starlette(
            routes=self._routes(place),
            middleware=[Middleware(Guard, token=token, names=names, by_address=by_address)],
            exception_handlers={BadQuery: _bad_query, UnknownQuery: _unknown, HeadraceError: _refused},
            lifespan=self._lifespan,
            max_body_size=MOST_BODY,
        )

    def _routes(self, place: Path) -> list[Route | Mount]:
        query = "/api/queries/{name}"
        return [
            Route("/", self._page),
            Mount("/pages", StaticFiles(directory=PAGES)),
            Mount("/assets", StaticFiles(directory=place, check_dir=False)),
            Route("/api/state", self._state),
            Route("/api/events", self._events),
            Route("/api/plan", self._plan, methods=["POST"]),
            Route(query, self._save, methods=["PUT"]),
            Route(query, self._remove, methods=["DELETE"]),
            Route(f"{query}/start", self._start, methods=["POST"]),
            Route(f"{query}/stop", self._stop, methods=["POST"]),
            Route(f"{query}/results", self._results),
            Route("/feeds/{name}.{format}", self._feed),
        ]

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self.room.desk.run()), asyncio.create_task(self.broadcast.run())]
        for task in tasks:
            task.add_done_callback(self._ended)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError, Exception):  # _ended has noted what went wrong
                    await task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Have the server stop when the desk has: pages that show nothing new would look as if all were well."""
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self.on_failure()

    async def _page(self, _request: Request) -> Response:
        return FileResponse(PAGES / "index.html")

    async def _state(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "version": headrace.__version__,
                "missing": self.missing,
                "recorded": self.recorded,
                "now": self.broadcast.now(),
                "columns": self.room.columns(),
                "functions": self.room.functions(),
                "curves": self.broadcast.curves(),
                **self.room.status(),
            }
        )

    async def _events(self, request: Request) -> Response:
        if self.broadcast.clients >= MOST_CLIENTS:
            return JSONResponse({"error": f"{MOST_CLIENTS} pages follow this desk already"}, 503, {"Retry-After": "10"})
        resumed = request.headers.get("last-event-id")
        given = read_position(resumed if resumed is not None else request.query_params.get("after", ""))
        last = _number(request, "last", 100, MOST_ROWS)
        cursor = self.broadcast.cursor(given, last, resumed=resumed is not None, only=request.query_params.get("query"))
        return StreamingResponse(self.broadcast.stream(cursor), media_type="text/event-stream")

    async def _plan(self, request: Request) -> Response:
        """The plan, or the mistake: that a query is wrong is an answer here, and no error, which browsers log."""
        sql = await _text(request, "sql")
        try:
            return JSONResponse({"plan": self.room.plan(sql)})
        except BadQuery as error:
            return JSONResponse({"plan": None, **_mistake(error)})

    async def _save(self, request: Request) -> Response:
        body = await _body(request)
        self.room.save(request.path_params["name"], _member(body, "sql"), run=bool(body.get("run", True)))
        return self._changed()

    async def _remove(self, request: Request) -> Response:
        self.room.remove(request.path_params["name"])
        return self._changed()

    async def _start(self, request: Request) -> Response:
        self.room.start(request.path_params["name"])
        return self._changed()

    async def _stop(self, request: Request) -> Response:
        self.room.stop(request.path_params["name"])
        return self._changed()

    async def _results(self, request: Request) -> Response:
        after = _number(request, "after", 0, 1 << 53)
        rows = self.room.rows(request.path_params["name"], after, _number(request, "limit", 100, MOST_ROWS))
        return JSONResponse({"rows": rows})

    async def _feed(self, request: Request) -> Response:
        name, ending = request.path_params["name"], request.path_params["format"]
        if ending not in _FORMATS:
            raise UnknownQuery(f"results come as rss, atom and json, not as {shown(ending)}")
        format, kind = _FORMATS[ending]
        before = _number(request, "before", 0, 1 << 53) or None
        link = f"{request.base_url}feeds/{quote(name, safe='')}.{ending}"  # the Host header was checked
        return Response(self.room.feed(name, format, link, before), media_type=f"{kind}; charset=utf-8")

    def _changed(self) -> Response:
        self.broadcast.look()
        return JSONResponse(self.room.status())


async def _body(request: Request) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadInput(f"the request has the type {shown(kind)}; send application/json")
    try:
        body = json.loads(await request.body())
    except ValueError as error:
        raise BadInput(f"the request is not JSON: {shown(error)}") from None
    if not isinstance(body, dict):
        raise BadInput("the request is not a JSON object")
    return body


async def _text(request: Request, name: str) -> str:
    return _member(await _body(request), name)


def _member(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise BadInput(f"the request has no text {name!r}")
    return value


def _number(request: Request, name: str, otherwise: int, most: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return otherwise
    if not (given.isascii() and given.isdigit()) or int(given[:20]) > most:
        raise BadInput(f"{name}={shown(given)} is not a number from 0 to {most:,}")
    return int(given)


def _refused(_request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400 if isinstance(error, BadInput) else 500)


def _unknown(_request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 404)


def _bad_query(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BadQuery)
    return JSONResponse(_mistake(error), 400)


def _mistake(error: BadQuery) -> dict[str, Any]:
    return {"error": error.reason, "place": mistake(error)}
