"""Errors in the form that OpenAI's clients read, and who may use which agent."""

from contextlib import ExitStack
from typing import Any

import openai
import pytest

from tests.integration.api_openai.conftest import Office, assistant, user
from tests.integration.api_openai.test_sessions import sessions_of
from tests.integration.runs.conftest import says
from toolcrib.api.auth.principal import ACCESS_COOKIE
from toolcrib.core.callers import WorkspaceRole
from toolcrib.storage.database import Tenant
from toolcrib.storage.users import ActingUser

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tools": [TOOL]}, "an agent has its own"),
        ({"functions": [{"name": "f"}]}, "an agent has its own"),
        ({"n": 2}, "gives one answer"),
        ({"response_format": {"type": "json_object"}}, "answers in text"),
        ({"logprobs": True}, "no `logprobs`"),
        ({"modalities": ["text", "audio"]}, "text only"),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, "Only text"),
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
async def test_unsupported_request_is_rejected_with_a_reason(office: Office, given: dict[str, Any], words: str) -> None:
    body = {"model": office.name, "messages": [user("Hi")], **given}

    with pytest.raises(openai.BadRequestError, match=words) as refused:
        await office.client.post("/chat/completions", body=body, cast_to=dict[str, Any])

    assert refused.value.type == "invalid_request_error"
    assert refused.value.code == "validation_error"
    assert await sessions_of(office) == 0


async def test_unused_tools_are_accepted(office: Office) -> None:
    office.model.say(says("Hello."))

    answer = await office.ask(user("Hi"), tools=[TOOL], tool_choice="none", seed=1, stop=["x"], max_tokens=3)

    assert answer.choices[0].message.content == "Hello."


async def test_errors_have_the_form_that_openai_clients_know(office: Office) -> None:
    wrong = office.client.with_options(api_key="tck_wrong")
    with pytest.raises(openai.AuthenticationError) as unknown:
        await wrong.models.list()
    with pytest.raises(openai.NotFoundError) as missing:
        await office.ask(user("Hi"), model="nobody/there")
    async with office.http() as http:
        no_json = await http.post("/chat/completions", content=b"{")
        nowhere = await http.get("/completions")

    assert (unknown.value.code, unknown.value.response.headers["www-authenticate"]) == ("invalid_api_key", "Bearer")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    assert "GET /v1/models" in missing.value.message
    assert (no_json.status_code, nowhere.status_code) == (400, 404)
    assert no_json.json()["error"]["type"] == "invalid_request_error"


async def test_only_a_persons_own_key_in_the_header_authenticates(office: Office) -> None:
    assert office.tenant.user_id is not None
    token = office.services.tokens.issue(office.tenant.user_id, 0)
    _, agents = await office.services.keys.create_for_agent(office.tenant, office.agent_id, name="key", expires_at=None)
    async with office.http() as http:
        for path in ("/models", f"/models/{office.name}"):
            cookie = await http.get(path, headers={"Authorization": "", "Cookie": f"{ACCESS_COOKIE}={token}"})
            assert cookie.status_code == 401
            assert (await http.get(path, headers={"Authorization": f"Bearer {token}"})).status_code == 200
    with pytest.raises(openai.PermissionDeniedError, match="key of your own"):
        await office.client.with_options(api_key=agents).models.list()


@pytest.mark.req("AP-5", part="membership, for OpenAI clients")
async def test_agents_of_another_workspace_are_not_reachable(office: Office, guided: Office) -> None:
    sure = f"{guided.tenant.workspace_id}/clerk"

    for name in (guided.name, sure):
        with pytest.raises(openai.NotFoundError):
            await office.ask(user("Hi"), model=name)
        with pytest.raises(openai.NotFoundError):
            await office.client.models.retrieve(name)
    assert await sessions_of(guided) == 0
    assert guided.name not in [one.id async for one in office.client.models.list()]


@pytest.mark.req("AP-5", part="membership, for OpenAI clients")
async def test_viewer_lists_agents_and_may_not_message_them(office: Office, guided: Office) -> None:
    await office.services.workspaces.add_member(office.tenant, email=guided.email, role=WorkspaceRole.VIEWER)

    assert office.name in [one.id async for one in guided.client.models.list()]
    with pytest.raises(openai.PermissionDeniedError, match="Your role here is viewer"):
        await guided.ask(user("Hi"), model=office.name)


@pytest.mark.req("AP-5", part="namesakes, for OpenAI clients")
async def test_ambiguous_agent_name_gets_no_conversation(office: Office, guided: Office) -> None:
    """Anyone may add somebody to a workspace with the same name as their own."""
    services, mallory = guided.services, guided.tenant
    assert mallory.user_id is not None
    made = await services.workspaces.create(
        ActingUser(mallory.user_id), name=office.workspace, node=services.settings.node_name
    )
    there = Tenant(made.id, mallory.user_id, 0)
    await services.agents.create(there, name="clerk", definition="trust: guided\n")
    await services.workspaces.add_member(there, email=office.email, role=WorkspaceRole.MEMBER)
    sure = f"{office.tenant.workspace_id}/clerk"

    with pytest.raises(openai.NotFoundError, match="2 agents are named") as unsure:
        await office.ask(user("A secret."))
    office.model.say(says("It is safe here."))
    answer = await office.ask(user("A secret."), model=sure)

    assert sure in unsure.value.message
    assert answer.choices[0].message.content == "It is safe here."
    assert sure in [one.id async for one in office.client.models.list()]


async def test_concurrent_requests_have_the_same_limit_as_elsewhere(office: Office) -> None:
    doors, person = office.services.doors, office.tenant.user_id
    assert person is not None
    client = office.client.with_options(max_retries=0)
    with ExitStack() as inside:
        for _ in range(64):
            inside.enter_context(doors.authenticated(person))
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model=office.name, messages=[{"role": "user", "content": "Hi"}])

    assert refused.value.code == "rate_limit_exceeded"
    assert refused.value.response.headers["retry-after"] == "5"
    assert await sessions_of(office) == 0
