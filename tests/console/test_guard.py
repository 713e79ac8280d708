"""What the server refuses: other names, requests without the token, other origins; and the headers of every answer."""

import shutil
import ssl
import subprocess
import threading

import httpx
import pytest

from headrace.console.app import Console
from headrace.console.guard import TOKEN_HEADER
from headrace.console.opening import open_desk
from headrace.console.server import ConsoleServer, Listening
from headrace.errors import BadInput, OutsideFailure
from tests.support.console_server import (
    LEFT,
    PAIRS,
    PATIENCE,
    RIGHT,
    TOKEN,
    WrittenFeeds,
    rss,
    running_console,
    wait_for,
)

CHANGES = [
    ("PUT", "/api/queries/other", {"sql": PAIRS}),
    ("DELETE", "/api/queries/kept", None),
    ("POST", "/api/queries/kept/stop", None),
    ("POST", "/api/queries/kept/start", None),
    ("POST", "/api/plan", {"sql": PAIRS}),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    feeds = WrittenFeeds({LEFT: rss(["one"]), RIGHT: rss(["two"])})
    with running_console(tmp_path_factory.mktemp("guard"), feeds) as running:
        running.run("kept", PAIRS)
        yield running


@pytest.mark.parametrize(
    "path",
    ["/", "/pages/desk.js", "/pages/desk.css", "/assets/nothing.js", "/api/state", "/api/none", "/feeds/kept.rss"],
)
def test_every_answer_has_the_headers(server, path):
    headers = server.http.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8640", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.0.0.1", "a b"],
)
@pytest.mark.parametrize("path", ["/", "/api/state", "/api/events"])
def test_another_host_name_is_refused(server, host, path):
    answer = server.http.get(path, headers={"Host": host})
    assert answer.status_code in (400, 421), answer.text
    assert "kept" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1", "[::1]:80", "localhost."])
def test_names_of_this_machine_are_answered(server, host):
    assert server.http.get("/api/state", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "é"])
def test_changes_need_the_token(server, method, path, body, token):
    headers = [] if token is None else [(TOKEN_HEADER, token.encode())]
    answer = server.http.request(method, path, json=body, headers=headers)
    assert answer.status_code == 403
    assert server.query("kept")["state"] == "running"
    assert not server.query("other")


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:1", "null"])
def test_a_page_of_another_origin_changes_nothing_even_with_the_token(server, origin):
    headers = {TOKEN_HEADER: TOKEN, "Origin": origin}
    assert server.http.post("/api/queries/kept/stop", headers=headers).status_code == 403
    assert server.query("kept")["state"] == "running"


def test_the_token_is_in_no_answer(server):
    for path in ("/", "/api/state", "/feeds/kept.rss", "/feeds/kept.json", "/pages/server.js"):
        assert TOKEN not in server.http.get(path).text


@pytest.mark.parametrize(
    "path", ["/assets/../assets.json", "/pages/%2e%2e/app.py", "/pages/..%2fapp.py", "/pages//etc/passwd"]
)
def test_files_outside_the_directories_are_not_served(server, path):
    assert server.http.get(path).status_code == 404


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/plain", b"{}", "application/json"),
        ("application/json", b"{", "not JSON"),
        ("application/json", b"[]", "object"),
    ],
)
def test_a_body_that_is_no_request_is_refused_in_words(server, kind, body, expected):
    headers = {TOKEN_HEADER: TOKEN, "Content-Type": kind}
    answer = server.http.put("/api/queries/x", content=body, headers=headers)
    assert (answer.status_code, expected in answer.json()["error"]) == (400, True)


def test_a_body_that_is_too_large_is_refused(server):
    answer = server.change("PUT", "/api/queries/x", {"sql": "x" * (1 << 19)})
    assert answer.status_code in (400, 413)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "desk.example"])
def test_other_addresses_need_tls_or_a_flag(host):
    with pytest.raises(BadInput, match="--certificate"):
        Listening(host)
    assert Listening(host, insecure=True).host == host


def test_half_a_certificate_is_refused(tmp_path):
    with pytest.raises(BadInput, match="both"):
        Listening(certificate=tmp_path / "c.pem")
    with pytest.raises(BadInput, match="no file"):
        Listening(certificate=tmp_path / "c.pem", key=tmp_path / "k.pem")


def test_a_port_that_is_taken_is_named(server):
    with pytest.raises(OutsideFailure, match=f"port {server.port}"):
        Listening(port=server.port).bind()


def test_tls_serves_by_its_certificate(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    listening = Listening(certificate=certificate, key=key)
    opened = open_desk(tmp_path / "state", fetcher=WrittenFeeds())
    console = Console(opened.room, token=TOKEN, clock=opened.clock, names=["desk.example"], by_address=True)
    server = ConsoleServer(console, listening)
    with listening.bind() as listener:
        port = listener.getsockname()[1]
        assert listening.address(listener, "t") == f"https://127.0.0.1:{port}/#token=t"
        thread = threading.Thread(target=server.serve_on, args=(listener,))
        thread.start()
        try:
            wait_for(lambda: server.started, "the server")
            trusted = ssl.create_default_context(cafile=str(certificate))
            with httpx.Client(verify=trusted, trust_env=False, timeout=PATIENCE) as client:
                for host in ("desk.example", "192.0.2.7"):
                    assert client.get(f"https://127.0.0.1:{port}/api/state", headers={"Host": host}).status_code == 200
                assert client.get(f"https://127.0.0.1:{port}/", headers={"Host": "evil.example"}).status_code == 421
        finally:
            server.stop()
            thread.join(PATIENCE)
