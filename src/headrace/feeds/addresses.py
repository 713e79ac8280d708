"""Which addresses feeds may be pulled from, so that a query over feeds cannot look into the network that it runs in.

Names are resolved once for each connection, every address is judged as the number that it is, and the connection goes to that
very address: neither an odd spelling of a host (decimal, octal, IPv4 in IPv6) nor a name that changes its address gets past.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from headrace.errors import BadInput, FeedRefused, shown

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""gives the addresses of a host as texts"""

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that is given out of IPv6 to reach others by
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # an IPv4 address behind a translator, in the last four bytes
_WEB_PORTS = (80, 443)
_FIRST_FREE_PORT = 1024  # below are the ports of mail, databases' neighbours, logins: services that no feed is at
_RESOLVERS = 16  # threads that ask for addresses: half of the pulls that run at a time
_LONGEST = 2048  # characters of a URL: what servers and browsers take


def check_url(url: str, *, allow_files: bool = False, any_port: bool = False) -> httpx.URL:
    """Return a feed's URL taken apart; refuses one that is not http(s), has a user or password, or another service's port.

    Example
    -------
    >>> check_url("https://example.org/feed").host
    'example.org'
    >>> check_url("https://ann:secret@example.org/feed")
    Traceback (most recent call last):
    ...
    headrace.errors.FeedRefused: the URL of a feed at 'example.org' has a user or a password in it, which would be
        shown wherever the feed is named; give it without
    """
    if not isinstance(url, str) or len(url) > _LONGEST:
        raise FeedRefused(f"url={shown(url)} is not a URL of up to {_LONGEST} characters")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise FeedRefused(f"url={_without_user(url)} is not a URL: {error}") from None
    if parsed.userinfo:
        raise FeedRefused(
            f"the URL of a feed at {shown(parsed.host)} has a user or a password in it, which would be shown wherever the feed is"
            " named; give it without"
        )
    if parsed.scheme == "file" and allow_files:
        return parsed
    if parsed.scheme not in ("http", "https"):
        allowed = "http, https and file" if allow_files else "http and https"
        hint = "; files are read with allow_files=True, or --allow-files" if parsed.scheme == "file" else ""
        raise FeedRefused(f"url={shown(url)} is not pulled: the schemes of feeds are {allowed}{hint}")
    if not parsed.host:
        raise FeedRefused(f"url={shown(url)} names no host; give one such as https://example.org/feed")
    port = parsed.port
    if not (any_port or port is None or port in _WEB_PORTS or port >= _FIRST_FREE_PORT):
        raise FeedRefused(
            f"url={shown(url)} is not pulled: port {port} is that of another service; feeds are at 80, 443, and"
            f" {_FIRST_FREE_PORT} and above, unless private addresses are allowed"
        )
    return parsed


def is_public(address: Address) -> bool:
    """Say whether an address is one of the public internet: no private, loopback, link-local, multicast or reserved one.

    Example
    -------
    >>> texts = ["93.184.216.34", "127.0.0.1", "::ffff:10.0.0.1", "2606:2800:220:1::1", "64:ff9b::127.0.0.1"]
    >>> [is_public(ipaddress.ip_address(text)) for text in texts]
    [True, False, False, True, False]
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(address.packed[-4:])
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


class AddressRules:
    """Judges the addresses of hosts.

    Parameters
    ----------
    allow_private
        False: only public addresses; True: all; or networks that are allowed besides, such as ``["10.1.0.0/16"]``.
    resolve
        Gives the addresses of a host; by default the system does.
    """

    def __init__(self, allow_private: bool | Sequence[str] = False, resolve: Resolver | None = None) -> None:
        self.allow_private = allow_private
        self._resolve = resolve or _system_addresses
        self._networks: list[Network] = []
        if not isinstance(allow_private, bool):
            self._networks = [_network(text) for text in allow_private]

    @property
    def any_port(self) -> bool:
        """Whether every port may be asked: of one's own network one knows what is there."""
        return bool(self.allow_private)

    def allowed(self, text: str) -> bool:
        """Say whether a connection to an address may be made."""
        if self.allow_private is True:
            return True
        address = ipaddress.ip_address(text)
        inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return is_public(address) or any((inner or address) in network for network in self._networks)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host, once, to the addresses that may be connected to.

        A host without any and a host that is not there give the same error: names of a private network stay private.
        """
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError):
            found = []
        if allowed := [address for address in found if self.allowed(address)]:
            return allowed
        raise FeedRefused(
            f"the host {shown(host)} is not known, or has no address that feeds may be pulled from: private, loopback, link-local"
            " and multicast addresses are refused unless allow_private (--allow-private) permits them"
        )


async def _system_addresses(host: str, port: int) -> list[str]:
    ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_resolvers(), ask)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@functools.cache
def _resolvers() -> ThreadPoolExecutor:
    """Return threads of their own: a name server that does not answer holds them, and must hold up nothing else."""
    return ThreadPoolExecutor(_RESOLVERS, "headrace-feeds-names")


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise BadInput(f"allow_private={shown(text)} is not a network such as '10.1.0.0/16': {error}") from error


def _without_user(url: str) -> str:
    """Show a URL that could not be taken apart without what may be a password."""
    return shown(url if "@" not in url else f"…@{url.rsplit('@', 1)[1]}")
