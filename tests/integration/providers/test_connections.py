"""Connections to providers: disconnecting, timeouts, retries, and hostile servers."""

import asyncio
import contextlib
import os
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.fakes.grammar import failure, received, taken
from tests.fakes.memory import WIRES
from tests.fakes.model_server import NDJSON, SSE, Answer, ModelServer, plain
from tests.fakes.scripted_turns import HELLO
from tests.integration.providers.conftest import Access
from tests.wait_until import PATIENCE
from toolcrib.core.errors import NotFound, ProviderError, ProviderErrorKind
from toolcrib.core.messages import UserMessage
from toolcrib.core.model_stream import StreamEvent, TextDelta
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.network.outbound import OutboundLimits
from toolcrib.providers import provider_registry
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.provider_registry import ProviderRegistry, RetryPolicy

HASTY = RetryPolicy(first_pause=0.001)


def hello(access: Access) -> ModelRequest:
    return ModelRequest(access.model, (UserMessage("Say hello."),))


def spoken(access: Access) -> list[bytes]:
    return WIRES[access.wire](HELLO)


def answer(access: Access, *pieces: bytes, **how: bool) -> Answer:
    return Answer(pieces, content_type=NDJSON if access.provider.name == "ollama" else SSE, **how)  # type: ignore[arg-type]


async def turn(providers: ProviderRegistry, access: Access, *, seconds: float = PATIENCE) -> list[StreamEvent]:
    request = hello(access)
    return await taken(
        providers.stream_turn(access.provider.name, request, access.credentials, seconds=seconds, patience=HASTY)
    )


async def test_leaving_the_stream_disconnects_at_once(access: Access, fake: ModelServer) -> None:
    fake.say(answer(access, *spoken(access)[:4], hang=True))

    async with aclosing(access.provider.stream(hello(access), access.credentials)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break

    async with asyncio.timeout(PATIENCE):
        await fake.hung_up.wait()


async def test_cancelling_the_reader_disconnects_at_once(
    access: Access, providers: ProviderRegistry, fake: ModelServer
) -> None:
    fake.say(answer(access, *spoken(access)[:4], hang=True))
    shown = asyncio.Event()

    async def read() -> None:
        async with aclosing(providers.stream_turn(access.provider.name, hello(access), access.credentials)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    shown.set()

    task = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE):
        await shown.wait()
    task.cancel()

    async with asyncio.timeout(PATIENCE):
        await fake.hung_up.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_server_that_goes_silent_ends_at_the_turn_timeout(
    access: Access, providers: ProviderRegistry, fake: ModelServer
) -> None:
    fake.say(answer(access, *spoken(access)[:4], hang=True))

    events = await turn(providers, access, seconds=0.5)

    assert failure(events).error.kind is ProviderErrorKind.TIMEOUT
    assert HELLO.text.startswith(received(events).message().text)
    async with asyncio.timeout(PATIENCE):
        await fake.hung_up.wait()


async def test_server_that_never_responds_ends_at_the_turn_timeout(
    access: Access, providers: ProviderRegistry, fake: ModelServer
) -> None:
    fake.say(answer(access, hang=True))
    assert failure(await turn(providers, access, seconds=0.2)).error.kind is ProviderErrorKind.TIMEOUT


async def test_failure_before_any_output_is_retried(
    access: Access, providers: ProviderRegistry, fake: ModelServer
) -> None:
    fake.say(
        plain(429, {"error": {"message": "slow down"}}, retry_after="0.01"),
        plain(503, {"error": {"message": "busy"}}),
        answer(access, cut=True),
    )

    events = await turn(providers, access)

    assert received(events).message().text == HELLO.text
    assert len(fake.received) == 4


async def test_failure_after_output_is_not_retried(
    access: Access, providers: ProviderRegistry, fake: ModelServer
) -> None:
    fake.say(answer(access, *spoken(access)[:4], cut=True))

    events = await turn(providers, access)

    assert failure(events).error.kind is ProviderErrorKind.BROKEN_STREAM
    assert received(events).message().text
    assert len(fake.received) == 1


async def test_unreachable_server_is_reported_after_the_last_attempt(
    access: Access, providers: ProviderRegistry
) -> None:
    # Nothing listens on port 1.
    nowhere = replace(access, credentials=ProviderCredentials("x" * 20, base_url="http://127.0.0.1:1"))
    error = failure(await turn(providers, nowhere)).error

    assert (error.status, error.kind) == (0, ProviderErrorKind.UNAVAILABLE)
    with pytest.raises(ProviderError):
        await nowhere.provider.list_models(nowhere.credentials)


async def test_connection_is_reused_after_a_complete_response(access: Access, fake: ModelServer) -> None:
    for _ in range(3):
        await taken(access.provider.stream(hello(access), access.credentials))

    assert (fake.connections, len(fake.received)) == (1, 3)


async def test_endless_error_response_is_read_up_to_a_limit(access: Access, fake: ModelServer) -> None:
    fake.say(Answer((b"x" * 60_000,) * 500, status=400, content_type="text/plain"))

    async with asyncio.timeout(PATIENCE):
        error = failure(await taken(access.provider.stream(hello(access), access.credentials))).error

    assert error.status == 400
    assert len(error.body) < OutboundLimits().error_body


async def test_redirect_is_not_followed_with_the_key(access: Access, fake: ModelServer) -> None:
    fake.say(Answer((), status=307, headers={"location": f"{fake.url}/elsewhere"}))

    events = await taken(access.provider.stream(hello(access), access.credentials))

    failure(events)
    assert len(fake.received) == 1


@pytest.mark.parametrize(
    "address", ["ftp://x", "http://", "no address", "http://user:secret@host", "http://h/?q=1", "http://h:99999", "//x"]
)
async def test_invalid_url_is_rejected_and_not_repeated(access: Access, address: str) -> None:
    odd = ProviderCredentials("x" * 20, base_url=address)
    error = failure(await taken(access.provider.stream(hello(access), odd))).error

    assert error.kind is ProviderErrorKind.REQUEST
    assert "secret" not in error.message
    with pytest.raises(ProviderError):
        await access.provider.list_models(odd)


ODD = {
    "key with a line end": ProviderCredentials("sk-1\r\nx-evil: 1"),
    "key with an accent": ProviderCredentials("schlüssel"),
    "header with a line end": ProviderCredentials("k", headers={"x-a": "1\r\nx-evil: 1"}),
    "header name with a blank": ProviderCredentials("k", headers={"x a": "1"}),
    "header that is ours": ProviderCredentials("k", headers={"Host": "elsewhere"}),
    "address with an accent": ProviderCredentials("k", base_url="http://127.0.0.1/ü"),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_credentials_that_cannot_be_sent_are_rejected(
    access: Access, fake: ModelServer, odd: ProviderCredentials
) -> None:
    credentials = replace(odd, base_url=odd.base_url or access.credentials.base_url)
    error = failure(await taken(access.provider.stream(hello(access), credentials))).error

    assert error.kind in (ProviderErrorKind.CREDENTIALS, ProviderErrorKind.REQUEST)
    assert "sk-1" not in error.message
    assert not fake.received


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"data": 5}', b'{"models": 5}', b'{"data": [5, {"id": 7}]}', b"\xff"]
)
async def test_malformed_model_list_is_an_error_or_empty(access: Access, fake: ModelServer, body: bytes) -> None:
    fake.say(Answer((body,), content_type="application/json"))
    with contextlib.suppress(ProviderError):
        assert await access.provider.list_models(access.credentials) == []


async def test_server_environment_keys_are_never_used(
    access: Access, fake: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "the-servers-own")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "x-gateway: the-servers-own")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")

    await taken(access.provider.stream(hello(access), replace(access.credentials, secret="")))

    assert "the-servers-own" not in str(fake.last.headers)


async def test_model_queries_end_in_time(
    access: Access, providers: ProviderRegistry, fake: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_registry, "_QUESTION_SECONDS", 0.1)
    fake.say(answer(access, b"{", hang=True), answer(access, hang=True))

    for question in (providers.models, providers.validate):
        with pytest.raises(ProviderError) as caught:
            await question(access.provider.name, access.credentials)
        assert caught.value.kind is ProviderErrorKind.TIMEOUT


async def test_unknown_provider_is_reported_with_the_known_ones(providers: ProviderRegistry) -> None:
    with pytest.raises(NotFound, match="anthropic, copilot, gemini, openai"):
        await providers.get("bard")


def test_listing_the_providers_loads_neither_an_sdk_nor_the_client() -> None:
    program = (
        "import sys; from toolcrib.providers.provider_registry import provider_classes; provider_classes(); "
        "print(sorted({'openai', 'anthropic', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_short_commands_do_not_load_the_client(option: str) -> None:
    program = [sys.executable, "-X", "importtime", "-m", "toolcrib.cli.main", option]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=dict(os.environ))

    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "toolcrib.cli" in loaded
    assert not loaded & {"aiohttp", "httpx2", "openai", "anthropic"}
