"""Which IP addresses are public. Addresses that users name must not lead into the server's own network."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

IpAddress = IPv4Address | IPv6Address

# Where clouds offer the settings and credentials of a machine, besides link-local addresses: of Azure, Alibaba, Oracle,
# Amazon and Google. That of Azure looks public.
CLOUD_METADATA: Final = frozenset(
    map(ip_address, ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
# Everything allocated as global unicast (RFC 4291). fec0::, NAT64 and IPv4-compatible addresses are outside it.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# Inside it: 6to4 and Teredo embed an arbitrary IPv4 address; documentation prefixes are unassigned.
_NOT_PUBLIC: Final = tuple(map(IPv6Network, ("2002::/16", "2001::/32", "2001:db8::/32", "3fff::/20")))


def is_public(address: IpAddress) -> bool:
    """Whether an address is reachable on the internet. An address that embeds another does not count as public."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address not in _GLOBAL_UNICAST or any(address in network for network in _NOT_PUBLIC):
            return False
    return address.is_global and not address.is_multicast and address not in CLOUD_METADATA
