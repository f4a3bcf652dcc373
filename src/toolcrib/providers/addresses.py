"""Which addresses a provider may be at. Does not look them up."""

from urllib.parse import urlsplit

from toolcrib.domain.errors import ProviderFault
from toolcrib.providers.faults import broken


def checked_address(address: str) -> str:
    """The address, if it can be one of a server; raises ProviderError otherwise."""
    try:
        parts = urlsplit(address)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
        parts = urlsplit("")
    if not sound or parts.username is not None or parts.query or parts.fragment or not address.isprintable():
        raise broken(
            # Not repeated: it may hold a password.
            "This is no address of a model server. Give one such as http://127.0.0.1:8000/v1, with no password in it.",
            fault=ProviderFault.REQUEST,
        )
    return address.rstrip("/")
