"""Which addresses may be called, and connections to the very address that was looked at."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

import httpcore

from aftercommit.errors import AddressRefused, InvalidOption
from aftercommit.events.names import shown

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Of IPv6, what stands for an IPv4 address: that one is looked at. Mapped; NAT64, by which a network of IPv6 alone
#: reaches the rest.
_HOLDS_IPV4: Final = tuple(map(IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96")))

#: What `is_global` of some release of Python lets pass, or what leads on to somewhere else: tunnels and translations
#: that nobody has to use any more, relays of 6to4, and addresses that are no single host's.
_REFUSED: Final[tuple[Network, ...]] = (
    *map(IPv4Network, ("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/4", "240.0.0.0/4")),
    *map(IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2002::/16")),
    *map(IPv6Network, ("fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8")),
)


class Guard:
    """What `allow_private=` says: nothing, everything, or these networks."""

    def __init__(self, allowed: bool | str | Iterable[str] = False) -> None:
        self._allows_all = allowed is True
        self._networks = () if isinstance(allowed, bool) else _networks(allowed)

    def allows(self, address: Address) -> bool:
        if self._allows_all:
            return True
        address = _meant(address)
        if any(address in network for network in self._networks):
            return True
        return address.is_global and not any(address in network for network in _REFUSED)

    def check(self, host: str, addresses: Sequence[Address]) -> None:
        """One that may not be called is enough to refuse the host: names that lead to both are made for that."""
        for address in addresses:
            if not self.allows(address):
                raise AddressRefused(
                    f"{host} leads to {address}, which is not a public address",
                    fix=f'if that is meant: Webhook(…, allow_private=["{address}"]), or a network, or True',
                )


def _networks(given: Any) -> tuple[Network, ...]:
    try:
        return tuple(map(ip_network, (given,) if isinstance(given, str) else given))
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f"allow_private is {shown(given)}: {error}", fix='pass True, or networks: allow_private=["10.1.0.0/16"]'
        ) from None


def _meant(address: Address) -> Address:
    """The IPv4 address that one of IPv6 stands for."""
    if isinstance(address, IPv6Address) and any(address in network for network in _HOLDS_IPV4):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def resolve(host: str, port: int) -> list[Address]:
    """The addresses of a host, in the order in which they should be tried."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(each[4][0]) for each in found]


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Connects by address, so that no second look at the name can lead elsewhere. What TLS looks at is the name."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await resolve(host, port)
                self._guard.check(host, addresses)
                return await self._connect(addresses, port, socket_options)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"no connection to {host} within {timeout:g} s") from None
        except (OSError, UnicodeError) as error:  # of the look-up
            raise httpcore.ConnectError(f"{host} has no address: {error}") from error

    async def _connect(
        self, addresses: Sequence[Address], port: int, socket_options: Iterable[Any] | None
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = httpcore.ConnectError("it has no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(str(address), port, socket_options=socket_options)
            except httpcore.ConnectError as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
