"""Whether credentials can be used at all: the address, the key and the headers. Does not look anything up."""

import re
from urllib.parse import urlsplit

from toolcrib.domain.errors import ProviderFault
from toolcrib.providers.faults import broken
from toolcrib.providers.provider import Credentials

# What may stand in the head of a request.
_VALUE = re.compile(r"[\x20-\x7e]*")
_NAME = re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+")
# They say how the body is carried, or for whom it is, and are not the user's to set.
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding"})


def checked_address(credentials: Credentials, default: str) -> str:
    """Where the provider is; raises ProviderError if that is no address, or key or headers cannot be sent."""
    if not _VALUE.fullmatch(credentials.secret):
        raise broken(
            "The key holds what no key can hold, such as a line end or an accent. Copy it again.",
            fault=ProviderFault.CREDENTIALS,
        )
    for name, value in credentials.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _OURS:
            raise broken(f"The header {name!r} cannot be sent with requests to a model.", fault=ProviderFault.REQUEST)
    address = credentials.base_url or default
    if not _is_address(address):
        # Not repeated: it may hold a password.
        raise broken(
            "This is no address of a model server. Give one such as http://127.0.0.1:8000/v1, with no password in it.",
            fault=ProviderFault.REQUEST,
        )
    return address.rstrip("/")


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return (
        sound and parts.username is None and not parts.query and not parts.fragment and bool(_VALUE.fullmatch(address))
    )
