"""Which machines providers are reached at. A user's address must not lead into the server's own network."""

import asyncio
import ipaddress
import socket
from collections.abc import Collection

import httpx2

ANYWHERE = "*"
# Addresses that carry another within them, which may be anyone's.
_CARRIERS = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))


class Network:
    """Public addresses, and those private ``host:port`` that the operator allows by a setting; ``*`` allows all."""

    def __init__(self, allowed: Collection[str], *, setting: str) -> None:
        self._allowed = frozenset(allowed)
        self._setting = setting

    async def addresses(self, host: str, port: int) -> list[str]:
        """Where a host may be reached: what was looked up and judged, so that a name cannot change its mind."""
        found = await _looked_up(host, port)
        if self._allowed.isdisjoint((ANYWHERE, f"{host}:{port}")) and not all(map(is_public, found)):
            raise httpx2.UnsupportedProtocol(
                f"{host}:{port} lies inside the server's network. If users may reach it, the operator sets "
                f"{self._setting}={host}:{port}"
            )
        return found


def is_public(address: str) -> bool:
    """Whether anybody on the internet could reach it; an address that carries another is not taken for public."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    carried = any(found in network for network in _CARRIERS if network.version == found.version)
    return found.is_global and not found.is_multicast and not carried


async def _looked_up(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError(f"{host} cannot be looked up: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
