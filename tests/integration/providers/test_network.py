"""A user's URL does not reach the server's own network."""

from ipaddress import ip_address

import pytest

from tests.fakes.grammar import failure, received, taken
from tests.fakes.model_server import KEY, ModelServer, model_server
from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.ip_addresses import is_public
from toolcrib.core.messages import UserMessage
from toolcrib.core.model_stream import StreamEvent
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.provider_registry import open_providers

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "168.63.129.16",
    "::ffff:168.63.129.16",
    "64:ff9b::a83f:8110",
    "100.100.100.200",
    "192.0.0.192",
    "fd20:ce::254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1%eth0",
    "fec0::1",
    "feff::1",
    "100::1",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_non_public_addresses_are_recognised(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "104.18.6.192", "2606:4700::6810:84e5", "::ffff:1.1.1.1"])
def test_public_addresses_are_recognised(address: str) -> None:
    assert is_public(ip_address(address))


async def ask(fake: ModelServer, url: str, *allowed: str) -> list[StreamEvent]:
    request = ModelRequest("llama-fake", (UserMessage("Say hello."),))
    async with open_providers(private_hosts=allowed) as providers:
        return await taken(providers.stream_turn("ollama", request, ProviderCredentials(KEY, base_url=url)))


async def test_private_addresses_are_rejected_unless_the_operator_allows_them() -> None:
    async with model_server() as fake:
        port = fake.url.rpartition(":")[2]
        for host in ("127.0.0.1", "localhost", "0x7f000001", "2130706433", "127.1", "[::ffff:127.0.0.1]"):
            error = failure(await ask(fake, f"http://{host}:{port}")).error
            assert error.kind in (ProviderErrorKind.REQUEST, ProviderErrorKind.UNAVAILABLE), host
        assert not fake.received

        refused = failure(await ask(fake, fake.url)).error
        assert refused.kind is ProviderErrorKind.REQUEST
        assert f"TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS=127.0.0.1:{port}" in refused.message

        assert received(await ask(fake, fake.url, f"127.0.0.1:{port}")).message().text
        assert failure(await ask(fake, fake.url, "127.0.0.1:1")).error.kind is ProviderErrorKind.REQUEST
