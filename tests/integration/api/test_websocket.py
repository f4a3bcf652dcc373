"""The chat protocol over a real socket: authentication, events, approvals, errors and closing."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.integration.api.accounts import Newcomer, Someone
from tests.integration.api.websocket_room import Room, listening
from tests.wait_until import PATIENCE
from toolcrib.api.access_tokens import AccessTokens
from toolcrib.api.connection_limits import ConnectionLimits, ConnectionTimeouts
from toolcrib.api.websocket.websocket_connection import CloseCode
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.events import Delta, DeltaType
from toolcrib.core.ids import new_id
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.users import ActingUser

GUIDED = """
trust: guided
tool_permissions:
  write: {allowed: true}
  read: {allowed: true}
  ask_user: {allowed: true}
"""


@asynccontextmanager
async def impatient(room: Room, pace: ConnectionTimeouts) -> AsyncIterator[Room]:
    async with listening(replace(room.services, connection_limits=ConnectionLimits(pace=pace))) as address:
        yield replace(room, address=address)


# Authentication


async def test_header_authenticates(room: Room) -> None:
    async with room.client() as client:
        assert (await client.resume())["payload"]["conversationId"] == str(room.session_id)


async def test_first_message_authenticates(room: Room) -> None:
    async with room.client(additional_headers={}) as client:
        await client.say("auth", token=room.token)
        assert (await client.next())["type"] == "chat:ok"
        await client.resume()


async def test_ticket_authenticates_once_as_a_protocol_or_as_a_first_message(room: Room) -> None:
    until = datetime.now(UTC) + timedelta(minutes=5)
    tickets = [await room.services.tickets.create(room.tenant, connection_expires_at=until) for _ in range(2)]

    offered = ["toolcrib.chat", f"toolcrib.ticket.{tickets[0]}"]
    async with room.client(additional_headers={}, subprotocols=offered) as client:
        await client.resume()
        assert client.socket.subprotocol == "toolcrib.chat"
    async with room.client(additional_headers={}) as client:
        await client.say("auth", ticket=tickets[1])
        await client.resume()

    with pytest.raises(InvalidStatus) as refused:
        async with room.client(additional_headers={}, subprotocols=offered):
            pass
    assert refused.value.response.status_code == 401
    async with room.client(additional_headers={}) as client:
        await client.say("auth", ticket=tickets[1])
        assert (await client.closed())[0] == CloseCode.UNAUTHENTICATED


async def test_ticket_is_valid_only_for_its_workspace_and_lifetime(room: Room, ada: Someone) -> None:
    other = await room.services.workspaces.create(
        ActingUser(ada.id), name="other", node=room.services.settings.node_name
    )
    elsewhere = await room.services.tickets.create(
        Tenant(other.id, ada.id), connection_expires_at=datetime.now(UTC) + timedelta(minutes=5)
    )
    ended = await room.services.tickets.create(
        room.tenant, connection_expires_at=datetime.now(UTC) - timedelta(seconds=1)
    )

    codes = []
    for ticket in (elsewhere, ended):
        async with room.client(additional_headers={}) as client:
            await client.say("auth", ticket=ticket)
            codes.append((await client.closed())[0])

    assert codes == [CloseCode.FORBIDDEN, CloseCode.UNAUTHENTICATED]


async def test_cookie_authenticates_only_from_our_own_pages(room: Room) -> None:
    cookie = {"Cookie": f"access_token={room.token}"}
    async with room.client(additional_headers=cookie, origin=f"http://{room.address}") as client:
        await client.resume()

    for origin in ("http://evil.example", f"http://{room.address}.evil.example", "null", None):
        with pytest.raises(InvalidStatus) as refused:
            async with room.client(additional_headers=cookie, origin=origin):
                pass
        assert refused.value.response.status_code == 403


async def test_foreign_origin_is_rejected_with_any_credentials(room: Room) -> None:
    for headers in (room.headers, {}):
        with pytest.raises(InvalidStatus) as refused:
            async with room.client(additional_headers=headers, origin="http://evil.example"):
                pass
        assert refused.value.response.status_code == 403


@pytest.mark.parametrize("name", ["token", "access_token", "ticket", "api_key"])
async def test_secret_in_the_url_is_rejected(room: Room, name: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"{room.url}?{name}={room.token}", proxy=None, additional_headers=room.headers):
            pass

    assert refused.value.response.status_code == 400
    assert b"not in the URL" in (refused.value.response.body or b"")


async def test_strangers_token_and_agent_key_are_rejected(room: Room, newcomer: Newcomer) -> None:
    agent = await room.services.agents.create(room.tenant, name="writer", definition=GUIDED)
    _, key = await room.services.keys.create_for_agent(room.tenant, agent.id, name="k", expires_at=None)
    for secret in ((await newcomer()).token, key):
        with pytest.raises(InvalidStatus) as refused:
            async with room.client(additional_headers={"Authorization": f"Bearer {secret}"}):
                pass
        assert refused.value.response.status_code == 403
        async with room.client(additional_headers={}) as client:
            await client.say("auth", token=secret)
            assert (await client.closed())[0] == CloseCode.FORBIDDEN


async def test_connection_that_does_not_authenticate_first_is_closed(room: Room) -> None:
    async with room.client(additional_headers={}) as client:
        await client.say("chat:resume", conversationId=str(room.session_id))
        assert (await client.closed())[0] == CloseCode.UNAUTHENTICATED
    async with (
        impatient(room, ConnectionTimeouts(introduce=0.05)) as hurried,
        hurried.client(additional_headers={}) as client,
    ):
        assert (await client.closed())[0] == CloseCode.SILENT


async def test_connection_closes_when_its_token_expires_unless_it_is_renewed(room: Room, ada: Someone) -> None:
    short = AccessTokens(room.services.settings.jwt_secret.get_secret_value(), minutes=0)
    short.lifetime_seconds = 2
    async with room.client(additional_headers={"Authorization": f"Bearer {short.issue(ada.id, 0)}"}) as client:
        assert (await client.closed())[0] == CloseCode.UNAUTHENTICATED
    async with room.client(additional_headers={"Authorization": f"Bearer {short.issue(ada.id, 0)}"}) as client:
        assert (await client.ask("auth", token=room.token))["type"] == "chat:ok"
        async with room.client(additional_headers={"Authorization": f"Bearer {short.issue(ada.id, 0)}"}) as other:
            await other.closed()
        assert (await client.resume())["payload"]["lastSeq"] == 0


async def test_connection_cannot_change_its_person(room: Room, newcomer: Newcomer) -> None:
    bob = await newcomer()
    await room.services.workspaces.add_member(room.tenant, email=bob.email, role=WorkspaceRole.OWNER)
    async with room.client() as client:
        assert (await client.ask("auth", token=bob.token))["payload"]["code"] == "VALIDATION_ERROR"


async def test_connections_per_person_are_limited(room: Room) -> None:
    async with listening(replace(room.services, connection_limits=ConnectionLimits(per_person=1))) as address:
        crowded = replace(room, address=address)
        async with crowded.client() as first:
            await first.resume()
            async with crowded.client() as second:
                assert (await second.closed())[0] == CloseCode.TOO_MANY


# Events


async def test_next_message_is_handled_after_the_session_is_subscribed(room: Room) -> None:
    """Otherwise a client that resumes and sends a message at once could miss the model's first words."""
    async with room.client() as client:
        assert (await client.ask("chat:resume", conversationId=str(room.session_id)))["type"] == "chat:ok"
        assert [message["type"] for message in client.result] == ["chat:resumed", "chat:ok"]
        assert len(room.services.live.subscribers_of(room.workspace_id, room.session_id)) == 1

        refused = await client.ask("chat:resume", conversationId=str(room.session_id), after=7)
        assert (refused["type"], set(refused["payload"]["fields"])) == ("chat:error", {"after"})


async def test_failed_subscription_is_not_confirmed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> NoReturn:
        raise OperationalError("the database is away")

    monkeypatch.setattr(room.services.live, "subscribe", away)
    async with room.client() as client:
        resume = {"type": "chat:resume", "payload": {"conversationId": str(room.session_id)}, "id": 1}
        await client.socket.send(json.dumps(resume))
        with pytest.raises(ConnectionClosed) as closed:
            await client.next()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == CloseCode.INTERNAL_ERROR


async def test_client_that_resumes_gets_missed_events_and_then_live_ones(room: Room) -> None:
    for number in range(3):
        await room.happens(n=number)
    async with room.client() as client:
        await client.resume(after=1)
        await client.until_seq(3)
        await room.happens("run-state", state="running")
        last = await client.until_seq(4)

    assert client.seqs == [2, 3, 4]
    assert last == {
        "type": "chat:run-state",
        "payload": {"conversationId": str(room.session_id), "state": "running"},
        "seq": 4,
    }


async def test_session_works_with_tool_calls_alone(room: Room) -> None:
    """The payloads are those of 000 task 3: camelCase, toolId, toolName, input, status, result."""
    async with room.client() as client:
        tool_id = await client.call("write", path="/a.txt", content="hello")
        result = await client.until_type("chat:tool-result")
        read = await client.call("read", path="/a.txt")
        await client.until(lambda m: m["type"] == "chat:tool-result" and m["payload"]["toolId"] == read)

    assert result["payload"]["conversationId"] == str(room.session_id)
    assert result["payload"]["toolId"] == tool_id
    assert result["payload"]["toolName"] == "write"
    assert result["payload"]["status"] == "success"
    assert isinstance(result["payload"]["result"], str)
    assert client.seqs == list(range(1, len(client.seqs) + 1))


async def test_tool_failure_is_an_event_of_its_session(room: Room) -> None:
    async with room.client() as client:
        await client.call("read", path="/nowhere.txt")
        result = await client.until_type("chat:tool-result")

    assert result["payload"]["status"] == "error"
    assert "/nowhere.txt" in result["payload"]["result"]


async def test_deltas_are_sent_between_events(room: Room) -> None:
    async with room.client() as client:
        await client.resume()
        await room.happens("tool-start", toolId="t1", toolName="bash", input={}, messageId="m1")
        await client.until_seq(1)
        for kind, source in ((DeltaType.TOOL, "t1"), (DeltaType.TEXT, "m2"), (DeltaType.THINKING, "m2")):
            room.services.live.publish_delta(Delta(room.workspace_id, room.session_id, kind, source, "héllo"))
        result = [(await client.until_type(f"chat:{kind}"))["payload"] for kind in ("tool-delta", "text-delta")]

    about = {"conversationId": str(room.session_id), "offset": 0, "attempt": 0}
    assert result == [
        {**about, "toolId": "t1", "chunk": "héllo", "messageId": "m1"},
        {**about, "messageId": "m2", "content": "héllo"},
    ]


# Approvals and questions


async def _with_agent(room: Room) -> Room:
    agent = await room.services.agents.create(room.tenant, name=f"writer {new_id()}", definition=GUIDED)
    session = await room.services.sessions.create(room.tenant, agent_id=agent.id)
    return replace(room, session_id=session.id)


async def test_tool_approve_decides_only_the_call_that_it_names(room: Room) -> None:
    room = await _with_agent(room)
    async with room.client() as client:
        first = await client.call("write", path="/first.txt", content="x")
        await client.until_type("chat:tool-confirm")
        second = await client.call("write", path="/second.txt", content="x")
        asked = await client.until_type("chat:tool-confirm")
        done = await client.ask("chat:tool-approve", toolId=second, approved=True)
        decided = next((m for m in client.result if m["type"] == "chat:pause-ended"), None)
        decided = decided or await client.until_type("chat:pause-ended")
        open_ones = await room.services.paused_calls.list(room.tenant, session_id=room.session_id)

    assert asked["payload"]["toolId"] == second
    assert asked["payload"]["toolName"] == "write"
    assert asked["payload"]["input"]["path"] == "/second.txt"
    assert done["type"] == "chat:ok"
    assert (decided["payload"]["toolId"], decided["payload"]["approved"]) == (second, True)
    assert [str(approval.call_id) for approval in open_ones] == [first]


async def test_second_decision_gets_an_error_that_it_is_too_late(room: Room) -> None:
    room = await _with_agent(room)
    async with room.client() as client, room.client() as other:
        tool = await client.call("write", path="/a.txt", content="x")
        await client.until_type("chat:tool-confirm")
        denied = await other.ask("chat:tool-approve", toolId=tool, approved=False, reason="not now")
        late = await client.ask("chat:tool-approve", toolId=tool, approved=True)
        result = next((m for m in client.result if m["type"] == "chat:tool-result"), None)
        result = result or await client.until_type("chat:tool-result")

    assert denied["type"] == "chat:ok"
    assert (late["type"], late["payload"]["code"]) == ("chat:error", "CONFLICT")
    assert result["payload"]["status"] == "error"


async def test_decision_about_more_than_one_call_needs_the_hash_of_what_was_seen(room: Room) -> None:
    room = await _with_agent(room)
    async with room.client() as client:
        tool = await client.call("write", path="/a.txt", content="x")
        seen = (await client.until_type("chat:tool-confirm"))["payload"]
        decision = {"toolId": tool, "approved": True, "scope": "session", "rule": seen["suggestedRule"]}
        without = await client.ask("chat:tool-approve", **decision)
        other = await client.ask("chat:tool-approve", **decision, argumentsSha256="0" * 64)
        right = await client.ask("chat:tool-approve", **decision, argumentsSha256=seen["argumentsSha256"])

    assert (without["payload"]["code"], [*without["payload"]["fields"]]) == ("VALIDATION_ERROR", ["argumentsSha256"])
    assert other["payload"]["code"] == "CONFLICT"
    assert right["type"] == "chat:ok"


async def test_client_that_is_up_to_date_still_gets_pending_approvals(room: Room) -> None:
    room = await _with_agent(room)
    async with room.client() as client:
        tool = await client.call("write", path="/a.txt", content="x")
        newest = (await client.until_type("chat:tool-confirm"))["seq"]
    async with room.client() as client:
        resumed = await client.resume(after=newest)
        again = await client.until_type("chat:tool-confirm")

    assert again["payload"]["toolId"] == tool
    assert again["payload"]["replayed"] is True
    assert "seq" not in again
    assert resumed["payload"]["pausedCalls"] == [again["payload"]["pauseId"]]


async def test_question_is_answered_over_the_socket(room: Room) -> None:
    room = await _with_agent(room)
    item = {"name": "colour", "question": "Which?", "schema": {"type": "string", "enum": ["red", "blue"]}}
    async with room.client() as client:
        await client.call("ask_user", questions=[item])
        asked = await client.until_type("chat:question")
        question = asked["payload"]["pauseId"]
        wrong = await client.ask("chat:answer", pauseId=question, answers={"colour": "green"})
        right = await client.ask("chat:answer", pauseId=question, answers={"colour": "red"})

    assert wrong["payload"]["code"] == "VALIDATION_ERROR"
    assert right["type"] == "chat:ok"


# Errors


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{",
        "[]",
        "1",
        '{"type": 1}',
        '{"type": "chat:nothing"}',
        '{"type": "chat:resume"}',
        '{"type": "chat:resume", "payload": {"conversationId": "x"}}',
        '{"type": "chat:resume", "payload": {"conversationId": "00000000-0000-0000-0000-000000000000", "after": -1}}',
        '{"type": "chat:resume", "payload": {"conversationId": "00000000-0000-0000-0000-000000000000"}}',
        '{"type": "chat:tool-approve", "payload": {"toolId": "00000000-0000-0000-0000-000000000000"}}',
        '{"type": "chat:cancel", "payload": {"conversationId": "00000000-0000-0000-0000-000000000000"}}',
        '{"type": "chat:tool-call", "payload": {"a": NaN}}',
        "[" * 1000 + "]" * 1000,
        b"\x00\x01",
    ],
)
async def test_malformed_message_gets_an_error_and_the_connection_stays_open(room: Room, frame: str | bytes) -> None:
    async with room.client() as client:
        await client.socket.send(frame)
        answer = await client.next()
        await client.resume()

    assert answer["type"] == "chat:error"
    assert answer["payload"]["message"]


async def test_too_large_frame_closes_the_connection(room: Room) -> None:
    async with room.client() as client:
        await client.socket.send("x" * 200_000)
        assert (await client.closed())[0] == 1009


async def test_message_to_an_agent_without_a_model_gets_an_error(room: Room) -> None:
    async with room.client() as client:
        history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        answer = await client.ask(
            "chat:send", conversationId=str(room.session_id), content="and now?", history=history, model="x"
        )

    assert answer["type"] == "chat:error"
    assert "has no agent" in answer["payload"]["message"]


async def test_a_message_brings_images_over_the_websocket(room: Room) -> None:
    definition = "provider: openai-compatible\nmodel: gpt-fake\n"
    agent = await room.services.agents.create(room.tenant, name="looker", definition=definition)
    session = await room.services.sessions.create(room.tenant, agent_id=agent.id)
    about = {"conversationId": str(session.id), "content": "Look."}
    image = {"name": "shot.png", "data": "iVBORw0KGgo="}
    async with room.client() as client:
        sent = await client.ask("chat:send", **about, attachments=[image])
        refused = await client.ask("chat:send", **about, attachments=["/missing.png"])
        fake = await client.ask("chat:send", **about, attachments=[image | {"data": "AAAA"}])
        many = await client.ask("chat:send", **about, attachments=[image] * 9)

    assert sent["type"] == "chat:ok"
    (message,) = await room.services.run_service.messages(room.tenant, session.id, after=0, limit=10)
    (attached,) = (message.metadata or {})["attachments"]
    assert attached["path"] == "shot.png"
    assert [answer["payload"]["code"] for answer in (refused, fake, many)] == ["VALIDATION_ERROR"] * 3
    assert "is not an image" in fake["payload"]["fields"]["attachments.0"]


async def test_session_of_another_workspace_is_not_found(room: Room, ada: Someone) -> None:
    other = await room.services.workspaces.create(
        ActingUser(ada.id), name="other", node=room.services.settings.node_name
    )
    theirs = await room.services.sessions.create(Tenant(other.id, ada.id), title="theirs")
    async with room.client() as client:
        answer = await client.ask("chat:resume", conversationId=str(theirs.id))
        called = await client.ask("chat:tool-call", conversationId=str(theirs.id), tool="ls", args={"path": "/"})

    assert [answer["payload"]["code"], called["payload"]["code"]] == ["NOT_FOUND", "NOT_FOUND"]


async def test_tool_call_has_the_trust_of_its_session(room: Room) -> None:
    definition = "trust: autonomous\ntool_permissions: {touch: {allowed: true}}\n"
    agent = await room.services.agents.create(room.tenant, name="builder", definition=definition)
    session = await room.services.sessions.create(room.tenant, agent_id=agent.id, trust=TrustLevel.SUPERVISED)
    async with room.client() as client:
        await client.say("chat:tool-call", conversationId=str(session.id), tool="touch", args={"path": "/x"})
        asked = await client.until_type("chat:tool-confirm")

    assert asked["payload"]["toolName"] == "touch"


# Membership and roles


async def test_removed_member_receives_and_sends_nothing_more(room: Room, newcomer: Newcomer) -> None:
    bob = await newcomer()
    await room.services.workspaces.add_member(room.tenant, email=bob.email, role=WorkspaceRole.MEMBER)
    headers = {"Authorization": f"Bearer {bob.token}"}
    async with room.client(additional_headers=headers) as hears, room.client(additional_headers=headers) as says:
        await hears.resume()
        await room.happens(n=1)
        await hears.until_seq(1)
        await room.services.workspaces.remove_member(room.tenant, bob.id)
        await room.happens(secret="after")
        await says.say("chat:cancel", conversationId=str(room.session_id))

        assert (await hears.closed())[0] == CloseCode.FORBIDDEN
        assert (await says.closed())[0] == CloseCode.FORBIDDEN
    assert hears.seqs == [1]


async def test_connection_with_revoked_tokens_is_closed(room: Room, ada: Someone) -> None:
    async with room.client() as client:
        await client.resume()
        await room.services.accounts.end_all_tokens(ActingUser(ada.id))
        await client.say("chat:cancel", conversationId=str(room.session_id))
        assert (await client.closed())[0] in (CloseCode.FORBIDDEN, CloseCode.UNAUTHENTICATED)


async def test_viewer_may_subscribe_and_read_and_stays_connected_when_denied_more(
    room: Room, newcomer: Newcomer
) -> None:
    vera = await newcomer()
    await room.services.workspaces.add_member(room.tenant, email=vera.email, role=WorkspaceRole.VIEWER)
    async with room.client(additional_headers={"Authorization": f"Bearer {vera.token}"}) as client:
        await client.resume()
        await client.say("chat:tool-call", conversationId=str(room.session_id), tool="touch", args={"path": "/x"})
        refused = await client.until_type("chat:error")
        await room.happens()
        await client.until(lambda message: "seq" in message)

    assert refused["payload"]["code"] == "FORBIDDEN"


# Slow and vanished clients


@pytest.mark.long
async def test_client_that_does_not_read_is_disconnected_while_others_are_served(room: Room) -> None:
    async with impatient(room, ConnectionTimeouts(stall=0.5)) as hurried, hurried.client() as quick:
        await quick.resume()
        delays = []
        loop = asyncio.get_running_loop()
        with await asyncio.to_thread(_connected_and_deaf, hurried):
            # More than the socket's buffers hold, so that the server has to wait for the client that does not read.
            for number in range(1, 120):
                started = loop.time()
                await hurried.happens(filler="x" * 100_000)
                await quick.until_seq(number)
                delays.append(loop.time() - started)
            async with asyncio.timeout(PATIENCE):
                while len(hurried.services.live.subscribers_of(hurried.workspace_id, hurried.session_id)) > 1:
                    await hurried.happens()

    assert sorted(delays)[len(delays) // 2] < 0.2


def _connected_and_deaf(room: Room) -> socket.socket:
    """A client that subscribes and then stops reading. It is written by hand, since libraries read by themselves."""
    host, port = room.address.split(":")
    deaf = socket.create_connection((host, int(port)))
    deaf.sendall(
        f"GET /api/v1/workspaces/{room.workspace_id}/ws HTTP/1.1\r\nHost: {room.address}\r\n"
        f"Authorization: Bearer {room.token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    deaf.settimeout(PATIENCE)
    assert deaf.recv(1_000).startswith(b"HTTP/1.1 101")
    said = json.dumps({"type": "chat:resume", "payload": {"conversationId": str(room.session_id)}}).encode()
    # A masked text frame; the mask is zero.
    deaf.sendall(bytes([0x81, 0x80 | len(said)]) + bytes(4) + said)
    heard = b""
    while b"chat:resumed" not in heard:
        heard += (more := deaf.recv(1_000))
        assert more, heard
    return deaf


async def test_call_continues_when_its_caller_disconnects(room: Room) -> None:
    async with room.client() as client:
        tool = await client.call("write", path="/left.txt", content="done all the same")
        client.socket.transport.abort()
    async with room.client() as back:
        await back.resume()
        result = await back.until(lambda m: m["type"] == "chat:tool-result")

    assert (result["payload"]["toolId"], result["payload"]["status"]) == (tool, "success")
