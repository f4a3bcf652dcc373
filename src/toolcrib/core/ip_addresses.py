"""Which IP addresses are on the open internet. What a user names must not lead into the server's own network."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Final

IpAddress = IPv4Address | IPv6Address

# All that is given out as global unicast (RFC 4291). fec0::, NAT64 and IPv4-compatible addresses lie outside it.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# Inside it: 6to4 and Teredo carry an IPv4 address that may be anyone's; documentation is nobody's.
_NOT_PUBLIC: Final = tuple(map(IPv6Network, ("2002::/16", "2001::/32", "2001:db8::/32", "3fff::/20")))


def is_public(address: IpAddress) -> bool:
    """Whether anybody on the internet could reach it; an address that carries another is not taken for public."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address not in _GLOBAL_UNICAST or any(address in network for network in _NOT_PUBLIC):
            return False
    return address.is_global and not address.is_multicast
