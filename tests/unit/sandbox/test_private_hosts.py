"""Hosts of the private network that the operator permits to commands: exactly those, and never a cloud's metadata."""

import ipaddress

import pytest
from pydantic import SecretStr

from toolcrib.core.errors import Misconfigured
from toolcrib.settings import Settings, load_settings
from toolcrib.wiring.tool_runtime import command_sandbox

REGISTRY = "registry.corp.example"
METADATA_V4 = ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192")
METADATA = (
    *METADATA_V4,
    *(f"::ffff:{address}" for address in METADATA_V4),
    *(f"64:ff9b::{address}" for address in METADATA_V4),
    *("fe80::1", "fd00:ec2::254", "fd20:ce::254"),
)
PRIVATE = ("127.0.0.1", "10.0.0.5", "172.16.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd00::1", "::ffff:10.0.0.5")


def settings(**given: object) -> Settings:
    secret = SecretStr("x")
    return load_settings(database_url="postgresql://", jwt_secret=secret, audit_seal_key=secret, **given)


def reaches(settings: Settings, host: str, port: int, address: str, *, by_name: bool = True) -> bool:
    network = command_sandbox(settings).network
    return network.may_connect(host, port, ipaddress.ip_address(address), by_name=by_name)


def test_no_private_address_is_permitted_by_default() -> None:
    assert settings().allowed_private_command_hosts == ()
    for address in (*PRIVATE, *METADATA):
        assert not reaches(settings(), REGISTRY, 4873, address), address
    assert reaches(settings(), REGISTRY, 4873, "8.8.8.8")


def test_a_listed_host_and_port_is_permitted_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_ALLOWED_PRIVATE_COMMAND_HOSTS", f"{REGISTRY.title()}:4873, wiki.corp.example:443")
    listed = settings()
    for address in PRIVATE:
        assert reaches(listed, REGISTRY, 4873, address), address
        assert reaches(listed, "wiki.corp.example", 443, address), address
        assert not reaches(listed, REGISTRY, 443, address), address
        assert not reaches(listed, "localhost.example", 4873, address), address
        assert not reaches(listed, f"evil.{REGISTRY}", 4873, address), address
        assert not reaches(listed, REGISTRY, 4873, address, by_name=False), "granted by a wildcard"
    for address in METADATA:
        assert not reaches(listed, REGISTRY, 4873, address), address


@pytest.mark.parametrize("wide", ["*", "*:443", "*.corp.example:443"])
def test_wildcards_are_rejected(wide: str) -> None:
    with pytest.raises(Misconfigured, match=r"TOOLCRIB_ALLOWED_PRIVATE_COMMAND_HOSTS: .*List each host and port"):
        settings(allowed_private_command_hosts=(wide,))
