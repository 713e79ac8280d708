"""HttpFetcher on real servers on loopback."""

import asyncio
import gzip
import socket
import ssl
import subprocess
import tracemalloc
import zlib
from contextlib import asynccontextmanager, closing

import pytest

from headrace.clock import ManualClock
from headrace.errors import BadInput, FeedRefused, FeedUnavailable
from headrace.feeds import transport
from headrace.feeds.decoding import Body
from headrace.feeds.fetcher import Request
from headrace.feeds.http_fetcher import HttpFetcher
from tests.support.feed_server import FeedServer, Reply

BODY = b"<rss version='2.0'><channel><title>t</title></channel></rss>" * 50


@asynccontextmanager
async def fetching(**options):
    """A server, and a fetcher that may reach it."""
    fetcher = HttpFetcher(**{"allow_private": True, **options})
    async with FeedServer() as server:
        try:
            yield server, fetcher
        finally:
            await fetcher.close()


def fetch_page(page, **options):
    """What becomes of one page."""

    async def run():
        async with fetching(**options) as (server, fetcher):
            server.pages["/feed"] = page
            return await fetcher.fetch(Request(server.url("/feed")))

    return asyncio.run(run())


def refused(page, **options):
    with pytest.raises(FeedUnavailable) as caught:
        fetch_page(page, **options)
    return str(caught.value)


# -- conditional requests, what servers ask for ------------------------------------------------------------------------


def test_validators_come_back_and_an_unchanged_document_is_not_sent_again():
    async def run():
        async with fetching() as (server, fetcher):
            headers = {"ETag": '"7"', "Last-Modified": "Wed, 01 May 2024 00:00:00 GMT", "Content-Type": "text/html"}
            server.pages["/feed"] = Reply(BODY, headers=headers)
            first = await fetcher.fetch(Request(server.url("/feed")))
            again = await fetcher.fetch(Request(server.url("/feed"), first.etag, first.modified))
            return first, again, server

    first, again, server = asyncio.run(run())
    assert (first.status, first.content, first.content_type) == (200, BODY, "text/html")
    assert (again.status, again.content) == (304, b"")
    plain, conditional = (asked.headers for asked in server.requests)
    assert "if-none-match" not in plain and "if-modified-since" not in plain
    assert conditional["if-none-match"] == '"7"'
    assert conditional["if-modified-since"] == "Wed, 01 May 2024 00:00:00 GMT"


def test_a_validator_that_cannot_be_sent_back_is_forgotten():
    assert fetch_page(Reply(BODY, headers={"ETag": '"é"'})).etag is None
    assert fetch_page(Reply(BODY, headers={"ETag": '"' + "x" * 2000 + '"'})).etag is None


@pytest.mark.parametrize(
    ("headers", "retry_after"),
    [
        ({"Retry-After": "120"}, 120.0),
        ({"Retry-After": "Wed, 01 May 2024 00:01:30 GMT"}, 90.0),
        ({"Retry-After": "Tue, 30 Apr 2024 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_server_says_when_to_come_back(status, headers, retry_after):
    may = ManualClock(start=1714521600.0)  # 2024-05-01T00:00:00Z
    answer = fetch_page(Reply(b"busy", status, headers), clock=may)
    assert (answer.status, answer.retry_after, answer.content) == (status, retry_after, b"")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("max-age=300", 300), ("public, Max-Age=60", 60), ("max-age=300, no-cache", None), ("s-maxage=9", None)],
)
def test_cache_control_says_how_long_a_document_lasts(value, seconds):
    assert fetch_page(Reply(BODY, headers={"Cache-Control": value})).max_age == seconds


def test_gone_is_an_answer_and_other_statuses_are_failures():
    assert fetch_page(Reply(b"", 410)).status == 410
    assert "answered 404 Not Found" in refused(Reply(b"", 404))
    assert "answered 500" in refused(Reply(b"", 500))


def test_cookies_are_not_kept():
    async def run():
        async with fetching() as (server, fetcher):
            server.pages["/feed"] = Reply(BODY, headers={"Set-Cookie": "who=you"})
            for _ in range(2):
                await fetcher.fetch(Request(server.url("/feed")))
            return server.requests

    assert ["cookie" in asked.headers for asked in asyncio.run(run())] == [False, False]


# -- bodies -----------------------------------------------------------------------------------------------------------------


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("GZIP", lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
    ],
)
def test_packed_bodies_are_unpacked(encoding, pack):
    assert fetch_page(Reply(pack(BODY), headers={"Content-Encoding": encoding})).content == BODY


def test_bodies_that_are_not_what_they_say_are_refused():
    assert "it is not" in refused(Reply(BODY, headers={"Content-Encoding": "gzip"}))
    assert "is cut" in refused(Reply(gzip.compress(BODY)[:-9], headers={"Content-Encoding": "gzip"}))
    assert "not asked for" in refused(Reply(BODY, headers={"Content-Encoding": "br"}))


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not():
    assert "more than the 1KiB allowed" in refused(Reply(BODY), max_size="1KiB")

    async def endless(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
            await writer.drain()

    assert "more than 1MiB, unpacked" in refused(endless, max_size="1MiB")
    assert fetch_page(Reply(BODY), max_size=len(BODY)).content == BODY


def test_a_small_gzip_of_64_megabytes_is_refused_in_little_memory():
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    bomb = b"".join([packer.compress(bytes(1 << 20)) for _ in range(64)] + [packer.flush()])
    assert len(bomb) < 1 << 19
    assert "more than 1MiB, unpacked" in refused(Reply(bomb, headers={"Content-Encoding": "gzip"}), max_size="1MiB")
    tracemalloc.start()
    try:
        with pytest.raises(FeedUnavailable):
            Body("u", "gzip", 1 << 20).add(bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_cut_bodies_are_refused():
    async def too_short(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + BODY[:500])
        await writer.drain()

    async def no_last_chunk(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n<rss>\r\n")
        await writer.drain()

    for page in (too_short, no_last_chunk):
        assert "RemoteProtocolError" in refused(page)


# -- time -------------------------------------------------------------------------------------------------------------------


def test_a_slow_body_is_cut_off():
    async def drips(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    assert "not there whole within 300ms" in refused(drips, timeout=0.3)


def test_a_host_that_takes_connections_and_never_answers_is_given_up():
    async def silence(writer):
        await asyncio.Event().wait()

    assert "not there whole within 200ms" in refused(silence, timeout=0.2)


def test_a_host_that_takes_no_connections_is_given_up():
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:  # they fill the queue of the socket, so that Linux drops who comes next
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        fetcher = HttpFetcher(allow_private=True, connect_timeout=0.2, timeout=20)
        with pytest.raises(FeedUnavailable, match="no connection within 200ms"):
            asyncio.run(fetcher.fetch(Request(f"http://127.0.0.1:{port}/feed")))
        for client in waiting:
            client.close()


def test_a_port_without_a_server_and_one_of_another_protocol_are_failures():
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        fetcher = HttpFetcher(allow_private=True)
        with pytest.raises(FeedUnavailable, match="ConnectError"):
            asyncio.run(fetcher.fetch(Request(f"http://127.0.0.1:{unused.getsockname()[1]}/")))

    async def banner(writer):
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()

    assert "RemoteProtocolError" in refused(banner)


# -- redirects --------------------------------------------------------------------------------------------------------------


def redirects(server, *hops):
    """Pages /0, /1, … of which each redirects to the next, with the statuses given; the last one is a document."""
    for i, status in enumerate(hops):
        server.pages[f"/{i}"] = Reply(b"", status, {"Location": f"/{i + 1}"})
    server.pages[f"/{len(hops)}"] = Reply(BODY, headers={"ETag": '"e"'})


@pytest.mark.parametrize(
    ("hops", "moved"),
    [((301,), "/1"), ((308, 301), "/2"), ((302,), None), ((307, 301), None), ((301, 303), "/1"), ((), None)],
)
def test_permanent_redirects_are_told_up_to_the_first_temporary_one(hops, moved):
    async def run():
        async with fetching() as (server, fetcher):
            redirects(server, *hops)
            answer = await fetcher.fetch(Request(server.url("/0")))
            return answer, moved and server.url(moved), hops and server.url(f"/{len(hops)}")

    answer, expected, source = asyncio.run(run())
    assert (answer.content, answer.moved, answer.source) == (BODY, expected, source or None)


def test_validators_go_to_the_address_that_they_came_from():
    async def run():
        async with fetching() as (server, fetcher):
            redirects(server, 302)
            first = await fetcher.fetch(Request(server.url("/0")))
            again = await fetcher.fetch(Request(server.url("/0"), first.etag, source=first.source))
            return again, server

    again, server = asyncio.run(run())
    assert again.status == 304
    assert ["if-none-match" in asked.headers for asked in server.requests] == [False, False, False, True]


def test_redirects_in_a_circle_too_many_and_to_nowhere_are_refused():
    async def run(wanted, *hops, **options):
        async with fetching(**options) as (server, fetcher):
            redirects(server, *hops)
            server.pages["/circle"] = Reply(b"", 301, {"Location": "/circle2"})
            server.pages["/circle2"] = Reply(b"", 301, {"Location": "/circle"})
            server.pages["/nowhere"] = Reply(b"", 302)
            with pytest.raises(FeedUnavailable) as caught:
                await fetcher.fetch(Request(server.url(wanted)))
            return str(caught.value), len(server.requests)

    assert "in a circle" in asyncio.run(run("/circle"))[0]
    assert "names no location" in asyncio.run(run("/nowhere"))[0]
    message, asked = asyncio.run(run("/0", *[302] * 5, max_redirects=3))
    assert "more than 3 times" in message
    assert asked == 4


@pytest.mark.parametrize(
    "place",
    ["file:///etc/passwd", "ftp://example.org/", "http://ann:secret@example.org/", "gopher://x"],
)
def test_redirects_that_lead_elsewhere_are_refused(place):
    page = Reply(b"", 302, {"Location": place})
    with pytest.raises(FeedRefused, match="redirects to an address that feeds may not be pulled from") as caught:
        fetch_page(page, allow_files=True)
    assert "secret" not in str(caught.value)


def test_a_redirect_into_a_private_network_is_refused_without_a_connection():
    async def run():
        async with FeedServer("127.0.0.2") as private, FeedServer("127.0.0.1") as public:
            fetcher = HttpFetcher(allow_private=["127.0.0.1/32"])
            public.pages["/feed"] = Reply(b"", 301, {"Location": private.url("/admin")})
            with pytest.raises(FeedRefused):
                await fetcher.fetch(Request(public.url("/feed")))
            await fetcher.close()
            return private.connections, len(public.requests)

    assert asyncio.run(run()) == (0, 1)


# -- addresses --------------------------------------------------------------------------------------------------------------

PRIVATE = [
    "127.0.0.1", "localhost", "127.1", "2130706433", "0177.0.0.1", "0x7f000001", "0.0.0.0", "127。0。0。1",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::1]",
    "[2002:7f00:1::]", "[fe80::1]", "[fc00::1]", "[ff02::1]", "[2001:db8::1]", "[fec0::1]",
    "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1",
]  # fmt: skip


def test_private_addresses_are_refused_in_any_spelling_and_nothing_connects():
    async def run():
        async with FeedServer("127.0.0.1") as server:
            fetcher = HttpFetcher(connect_timeout=1)
            for host in PRIVATE:
                with pytest.raises(FeedRefused):
                    await fetcher.fetch(Request(server.url("/", host)))
            return server.connections

    assert asyncio.run(run()) == 0


def test_the_error_of_a_refused_address_says_nothing_about_what_is_there():
    async def run():
        async with FeedServer("127.0.0.1") as server:
            messages = set()
            for url in (server.url(), "http://127.0.0.1:65001/", "http://10.1.2.3/", "http://not-there.invalid/"):
                with pytest.raises(FeedRefused) as caught:
                    await HttpFetcher().fetch(Request(url))
                messages.add(str(caught.value).split("'")[2])
            return messages

    assert len(asyncio.run(run())) == 1


class Names:
    """A name server of its own: gives one answer after the other, and counts."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0

    async def __call__(self, host, port):
        self.asked += 1
        return self.answers.pop(0)


def test_a_name_is_resolved_once_and_the_address_that_was_judged_is_connected_to():
    async def run():
        async with FeedServer("127.0.0.1") as private, FeedServer("127.0.0.2", private.port) as public:
            public.pages["/feed"] = private.pages["/feed"] = Reply(BODY)
            names = Names(["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1", "127.0.0.2"])
            fetcher = HttpFetcher(allow_private=["127.0.0.2/32"], resolve=names)
            url = public.url("/feed", "rebinds.example")
            answer = await fetcher.fetch(Request(url))
            assert (answer.content, names.asked) == (BODY, 1)
            assert public.requests[0].headers["host"] == f"rebinds.example:{public.port}"
            await fetcher.close()
            with pytest.raises(FeedRefused):
                await fetcher.fetch(Request(url))
            await fetcher.fetch(Request(url))  # of two addresses only the one that is allowed
            await fetcher.close()
            return private.connections, public.connections

    assert asyncio.run(run()) == (0, 2)


def test_certificates_are_checked_for_the_name_and_not_for_the_address(tmp_path, monkeypatch):
    names = ["-subj", "/CN=feeds.example", "-addext", "subjectAltName=DNS:feeds.example"]
    made = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made, *names], check=True, stderr=-3)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")

    async def run(host):
        async def resolve(host, port):
            return ["127.0.0.1"]

        async with FeedServer(tls=tls) as server:
            server.pages["/feed"] = Reply(BODY)
            fetcher = HttpFetcher(allow_private=True, resolve=resolve)
            try:
                return await fetcher.fetch(Request(server.url("/feed", host)))
            finally:
                await fetcher.close()

    with pytest.raises(FeedUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(run("feeds.example"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    transport._certificates.cache_clear()  # private: certificates are read once in a process
    assert asyncio.run(run("feeds.example")).content == BODY
    with pytest.raises(FeedUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(run("other.example"))
    transport._certificates.cache_clear()  # private: see above


@pytest.mark.parametrize("url", ["http://example.org:22/", "http://example.org:25/", "https://example.org:53/x"])
def test_ports_of_other_services_are_refused(url):
    with pytest.raises(FeedRefused, match="that of another service"):
        asyncio.run(HttpFetcher().fetch(Request(url)))


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:hunter2@127.0.0.1/",
        "http://ann@example.org/",
        "http://example.org\\@127.0.0.1/",
        "http://:hunter2@b/",
    ],
)
def test_users_and_passwords_are_refused_and_not_repeated(url):
    with pytest.raises(FeedRefused, match="a user or a password") as caught:
        asyncio.run(HttpFetcher().fetch(Request(url)))
    assert "hunter2" not in str(caught.value)


def test_files_are_read_only_when_told(tmp_path):
    (tmp_path / "a feed.xml").write_bytes(BODY)
    url = (tmp_path / "a feed.xml").as_uri()
    with pytest.raises(FeedRefused, match="http and https"):
        asyncio.run(HttpFetcher(allow_private=True).fetch(Request(url)))
    assert asyncio.run(HttpFetcher(allow_files=True).fetch(Request(url))).content == BODY


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"allow_private": ["10.0.0.0/99"]}, "10.0.0.0/99"),
        ({"max_redirects": -1}, "max_redirects=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"max_size": "big"}, "max_size='big'"),
    ],
)
def test_options_that_make_no_sense_are_named(options, named):
    with pytest.raises(BadInput, match=named.replace("(", r"\(")):
        HttpFetcher(**options)
