"""Which addresses an outgoing request may connect to, and the error of a request that failed.

Apart from the client, so that modules which only name these types do not import it.
"""

from collections.abc import Collection
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from toolcrib.core.ip_addresses import is_public

ANY_HOST: Final = "*"


class OutboundFailure(StrEnum):
    """Why a request failed. ``denied``: the policy; ``invalid``: the request itself; ``broken``: the response."""

    DENIED = "denied"
    INVALID = "invalid"
    UNREACHABLE = "unreachable"
    CERTIFICATE = "certificate"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    BROKEN = "broken"


class OutboundError(Exception):
    """A request failed. The message contains neither headers nor bodies."""

    def __init__(self, failure: OutboundFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class AddressDenied(OSError):
    """A connection to a private address was about to be made. Its text is always the same."""

    def __init__(self) -> None:
        super().__init__("The address is in the server's private network")


class NetworkPolicy:
    """Allows public addresses, and private ``host:port`` that the operator permits by a setting; ``*`` permits all.

    A user's URL must not lead into the server's own network.
    """

    def __init__(self, allowed: Collection[str], *, setting: str) -> None:
        self._allowed = frozenset(allowed)
        self._setting = setting

    def permits(self, host: str, port: int) -> bool:
        """Whether the operator permits this host, whatever its addresses are."""
        return not self._allowed.isdisjoint((ANY_HOST, f"{host}:{port}"))

    def denial(self, host: str, port: int) -> OutboundError:
        """Return the error for a host in the private network."""
        return OutboundError(
            OutboundFailure.DENIED,
            f"{host}:{port} is in the server's private network. To allow it, the operator sets "
            f"{self._setting}={host}:{port}",
        )


OPERATOR_URLS: Final = NetworkPolicy((ANY_HOST,), setting="")
"""For URLs that only the operator sets."""


def require_public(address: str) -> None:
    """Raise AddressDenied if the address is not reachable on the internet."""
    if not is_public(ip_address(address.partition("%")[0])):
        raise AddressDenied
