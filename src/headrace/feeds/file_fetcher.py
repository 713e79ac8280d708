"""FileFetcher: feeds that are files of this machine, for those who allow it, and for tests."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from headrace.errors import FeedRefused, FeedUnavailable, shown
from headrace.feeds.addresses import check_url
from headrace.feeds.fetcher import Answer, Request
from headrace.files import NotRegular, close, open_regular, read_at
from headrace.units import format_size, parse_size


class FileFetcher:
    """Fetches ``file://`` URLs. A file that was written again counts as changed: its validator is made of inode, time and size.

    Parameters
    ----------
    max_size
        Bytes of a file; a larger one is refused.

    Example
    -------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "feed.xml")
    >>> _ = path.write_text("<rss/>")
    >>> answer = asyncio.run(FileFetcher().fetch(Request(path.as_uri())))
    >>> answer.content, asyncio.run(FileFetcher().fetch(Request(path.as_uri(), etag=answer.etag))).status
    (b'<rss/>', 304)
    """

    def __init__(self, *, max_size: int | str = "8MiB") -> None:
        self.max_size = parse_size(max_size, name="max_size")

    async def fetch(self, request: Request) -> Answer:
        """Read a file, if it has changed."""
        return await asyncio.to_thread(self._read, request)

    async def close(self) -> None:
        """There is nothing to close."""

    def _read(self, request: Request) -> Answer:
        url = check_url(request.url, allow_files=True)
        if url.scheme != "file" or url.host not in ("", "localhost"):
            raise FeedRefused(
                f"url={shown(request.url)} is not a file of this machine; give one such as file:///data/feed.xml"
            )
        path = Path(url.path)
        try:
            # A link is followed here and not when it is opened, which takes regular files only: a FIFO would never end.
            fd = open_regular(path.resolve())
            try:
                found = os.fstat(fd)
                etag = f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"'
                if etag == request.etag:
                    return Answer(304, etag=etag)
                content = read_at(fd, self.max_size + 1, 0, path)
            finally:
                close(fd)
        except NotRegular:
            raise FeedUnavailable(f"{request.url} is not a regular file") from None
        except OSError as error:
            raise FeedUnavailable(f"{request.url} could not be read: {error.strerror}") from None
        if len(content) > self.max_size:
            raise FeedUnavailable(f"{request.url} has more than {format_size(self.max_size)} and is not read")
        return Answer(200, content, etag=etag)
