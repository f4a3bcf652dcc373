"""Errors in the form that OpenAI's clients read, and who may use which agent."""

from contextlib import ExitStack
from typing import Any

import openai
import pytest

from tests.integration.api_openai.conftest import OpenAiFixture, assistant, user
from tests.integration.api_openai.test_sessions import sessions_of
from tests.integration.runs.conftest import says
from toolcrib.api.auth.principal import ACCESS_COOKIE
from toolcrib.core.callers import WorkspaceRole
from toolcrib.storage.database import Tenant
from toolcrib.storage.users import ActingUser

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
FAKE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
STORED = {"type": "file", "file": {"file_id": "file-1"}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tools": [TOOL]}, "an agent has its own"),
        ({"functions": [{"name": "f"}]}, "an agent has its own"),
        ({"n": 2}, "gives one answer"),
        ({"response_format": {"type": "json_object"}}, "answers in text"),
        ({"logprobs": True}, "no `logprobs`"),
        ({"modalities": ["text", "audio"]}, "text only"),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, "does not fetch files"),
        ({"messages": [{"role": "user", "content": [FAKE]}]}, "is not an image"),
        ({"messages": [{"role": "user", "content": [SOUND]}]}, "only text, images and PDFs"),
        ({"messages": [{"role": "user", "content": [STORED]}]}, "not a `file_id`"),
        ({"messages": [{"role": "user", "content": [IMAGE] * 9}]}, "at most 8"),
        ({"messages": [user("Hi"), assistant("Hello")]}, "last message must be the user's"),
        ({"messages": [user("  ")]}, "last message must be the user's"),
        ({"messages": []}, "messages"),
        ({"messages": [user("a\0b")]}, "messages"),
        ({"messages": [user("x")] * 1_001}, "messages"),
        ({"messages": [user("x" * 200_001)]}, "200,000 characters"),
        ({"messages": [*[user("x" * 199_000), assistant("y" * 199_000)] * 6, user("Hi")]}, "2,000,000 characters"),
        ({"messages": [{"role": "ghost", "content": "boo"}]}, "role"),
    ],
)
async def test_unsupported_request_is_rejected_with_a_reason(
    openai_api: OpenAiFixture, given: dict[str, Any], words: str
) -> None:
    body = {"model": openai_api.name, "messages": [user("Hi")], **given}

    with pytest.raises(openai.BadRequestError, match=words) as refused:
        await openai_api.client.post("/chat/completions", body=body, cast_to=dict[str, Any])

    assert refused.value.type == "invalid_request_error"
    assert refused.value.code == "validation_error"
    assert await sessions_of(openai_api) == 0


async def test_unused_tools_are_accepted(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("Hello."))

    answer = await openai_api.ask(user("Hi"), tools=[TOOL], tool_choice="none", seed=1, stop=["x"], max_tokens=3)

    assert answer.choices[0].message.content == "Hello."


async def test_errors_have_the_form_that_openai_clients_know(openai_api: OpenAiFixture) -> None:
    wrong = openai_api.client.with_options(api_key="tck_wrong")
    with pytest.raises(openai.AuthenticationError) as unknown:
        await wrong.models.list()
    with pytest.raises(openai.NotFoundError) as missing:
        await openai_api.ask(user("Hi"), model="nobody/there")
    async with openai_api.http() as http:
        no_json = await http.post("/chat/completions", content=b"{")
        nowhere = await http.get("/completions")

    assert (unknown.value.code, unknown.value.response.headers["www-authenticate"]) == ("invalid_api_key", "Bearer")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    assert "GET /v1/models" in missing.value.message
    assert (no_json.status_code, nowhere.status_code) == (400, 404)
    assert no_json.json()["error"]["type"] == "invalid_request_error"


async def test_only_a_persons_own_key_in_the_header_authenticates(openai_api: OpenAiFixture) -> None:
    assert openai_api.tenant.user_id is not None
    token = openai_api.services.tokens.issue(openai_api.tenant.user_id, 0)
    _, agents = await openai_api.services.keys.create_for_agent(
        openai_api.tenant, openai_api.agent_id, name="key", expires_at=None
    )
    async with openai_api.http() as http:
        for path in ("/models", f"/models/{openai_api.name}"):
            cookie = await http.get(path, headers={"Authorization": "", "Cookie": f"{ACCESS_COOKIE}={token}"})
            assert cookie.status_code == 401
            assert (await http.get(path, headers={"Authorization": f"Bearer {token}"})).status_code == 200
    with pytest.raises(openai.PermissionDeniedError, match="your own API key"):
        await openai_api.client.with_options(api_key=agents).models.list()


async def test_agents_of_another_workspace_are_not_reachable(openai_api: OpenAiFixture, guided: OpenAiFixture) -> None:
    sure = f"{guided.tenant.workspace_id}/clerk"

    for name in (guided.name, sure):
        with pytest.raises(openai.NotFoundError):
            await openai_api.ask(user("Hi"), model=name)
        with pytest.raises(openai.NotFoundError):
            await openai_api.client.models.retrieve(name)
    assert await sessions_of(guided) == 0
    assert guided.name not in [one.id async for one in openai_api.client.models.list()]


async def test_viewer_lists_agents_and_may_not_message_them(openai_api: OpenAiFixture, guided: OpenAiFixture) -> None:
    await openai_api.services.workspaces.add_member(openai_api.tenant, email=guided.email, role=WorkspaceRole.VIEWER)

    assert openai_api.name in [one.id async for one in guided.client.models.list()]
    with pytest.raises(openai.PermissionDeniedError, match="Your role here is viewer"):
        await guided.ask(user("Hi"), model=openai_api.name)


async def test_ambiguous_agent_name_gets_no_conversation(openai_api: OpenAiFixture, guided: OpenAiFixture) -> None:
    """Anyone may add somebody to a workspace with the same name as their own."""
    services, mallory = guided.services, guided.tenant
    assert mallory.user_id is not None
    made = await services.workspaces.create(
        ActingUser(mallory.user_id), name=openai_api.workspace, node=services.settings.node_name
    )
    there = Tenant(made.id, mallory.user_id, 0)
    await services.agents.create(there, name="clerk", definition="trust: guided\n")
    await services.workspaces.add_member(there, email=openai_api.email, role=WorkspaceRole.MEMBER)
    sure = f"{openai_api.tenant.workspace_id}/clerk"

    with pytest.raises(openai.NotFoundError, match="2 agents are named") as unsure:
        await openai_api.ask(user("A secret."))
    openai_api.model.say(says("It is safe here."))
    answer = await openai_api.ask(user("A secret."), model=sure)

    assert sure in unsure.value.message
    assert answer.choices[0].message.content == "It is safe here."
    assert sure in [one.id async for one in openai_api.client.models.list()]


async def test_concurrent_requests_have_the_same_limit_as_elsewhere(openai_api: OpenAiFixture) -> None:
    connection_limits, person = openai_api.services.connection_limits, openai_api.tenant.user_id
    assert person is not None
    client = openai_api.client.with_options(max_retries=0)
    with ExitStack() as inside:
        for _ in range(64):
            inside.enter_context(connection_limits.authenticated(person))
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model=openai_api.name, messages=[{"role": "user", "content": "Hi"}])

    assert refused.value.code == "rate_limit_exceeded"
    assert refused.value.response.headers["retry-after"] == "5"
    assert await sessions_of(openai_api) == 0
