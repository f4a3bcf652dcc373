"""Connections of trusted proxies are not counted as those of one client."""

import pytest

from toolcrib.api.connection_limits import ConnectionCapacity


@pytest.mark.parametrize(
    ("trusted", "address", "is_trusted"),
    [
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.8", False),
        ("127.0.0.1, 10.0.0.0/8", "10.200.3.4", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "not an address", False),
        ("*", "11.0.0.1", True),
        ("", "10.0.0.7", False),
    ],
)
def test_proxies_are_given_by_address_or_network(trusted: str, address: str, is_trusted: bool) -> None:
    assert ConnectionCapacity.here(trusted).trusts(address) is is_trusted
