"""Answers a POST with an ``Idempotency-Key`` once: a retry has no second effect, and gets the same answer.

The key is claimed in the database before the request runs. What the request creates gets an id of the claim, and each
of its transactions notes that it has committed something. So the retry after a crash knows whether to run again, and
finds what the first attempt created.
"""

import asyncio
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import structlog
from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.principal import Principal, authenticate, tenant_for, workspace_id_of
from toolcrib.api.http_errors import answer_to
from toolcrib.api.idempotent_answers import AnswerCipher, KeptAnswer, TakenAnswer, derived_key, ending, replay
from toolcrib.api.openai.openai_routes import error_response
from toolcrib.api.request_guard import admit_large, may_be_large, replayed
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import AnswerNotKept, BadArguments, EffectUnknown, KeyInUse, KeyReused, NotFound
from toolcrib.core.idempotency import EffectKind, RequestClaim, claimed_by
from toolcrib.core.ids import AgentId, McpServerId, RunId, ScheduleId, SessionId
from toolcrib.schemas.agents import AgentOut
from toolcrib.schemas.mcp_servers import McpServerOut
from toolcrib.schemas.schedules import ScheduleOut
from toolcrib.schemas.schema_base import OutModel
from toolcrib.schemas.sessions import RunOut, SessionOut
from toolcrib.schemas.workspaces import WorkspaceOut
from toolcrib.storage.database import OperationalError, Tenant, require
from toolcrib.storage.idempotency_keys import MOST_KEYS, ClaimedKey, ClaimState

_log = structlog.get_logger(__name__)

HEADER: Final = "Idempotency-Key"
_RAW_HEADER: Final = HEADER.lower().encode()
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_MOST_ANSWER_BYTES: Final = 65_536
# Larger bodies are hashed in a thread.
_HASHED_AT_ONCE: Final = 262_144
_OPENAI: Final = "/v1/"
_HASHES: Final = b"toolcrib idempotency request v1"

_WORKSPACE: Final = re.compile(r"/api/v1/workspaces/([^/]+)(?:/.*)?")
# The first that fits. Without a kind, the route has no effect, or is for people who have not logged in yet.
_KINDS: Final[tuple[tuple[re.Pattern[str], EffectKind | None], ...]] = (
    (re.compile(r"/v1/chat/completions"), EffectKind.RUN),
    (re.compile(r"/api/v1/auth/.*"), None),
    (re.compile(r"/api/v1/workspaces"), EffectKind.WORKSPACE),
    (re.compile(r"/api/v1/workspaces/[^/]+/tools"), EffectKind.CALL),
    (re.compile(r"/api/v1/workspaces/[^/]+/explain"), None),
    (re.compile(r"/api/v1/workspaces/[^/]+/files/[^/]+/restore"), EffectKind.CALL),
    (re.compile(r"/api/v1/workspaces/[^/]+/sessions/[^/]+/review"), EffectKind.CALL),
    (re.compile(r"/api/v1/workspaces/[^/]+/sessions/[^/]+/(?:messages|compact)"), EffectKind.RUN),
    (re.compile(r"/api/v1/workspaces/[^/]+/runs/[^/]+/retry"), EffectKind.RUN),
    (re.compile(r"/api/v1/workspaces/[^/]+/schedules/[^/]+/run"), EffectKind.RUN),
    (re.compile(r"/api/v1/workspaces/[^/]+/sessions(?:/[^/]+/forks)?"), EffectKind.SESSION),
    (re.compile(r"/api/v1/workspaces/[^/]+/agents"), EffectKind.AGENT),
    (re.compile(r"/api/v1/workspaces/[^/]+/schedules"), EffectKind.SCHEDULE),
    (re.compile(r"/api/v1/workspaces/[^/]+/mcp-servers"), EffectKind.MCP_SERVER),
    (re.compile(r"/api/v1/workspaces/[^/]+/packages"), EffectKind.ELSEWHERE),
    (re.compile(r"/api/v1/api-keys|/api/v1/users/[^/]+/password-reset"), EffectKind.SHOWN_ONCE),
    (re.compile(r"/api/v1/workspaces/[^/]+/(?:agents/[^/]+/keys|invitations|tickets)"), EffectKind.SHOWN_ONCE),
    (re.compile(r"/api/v1/.*"), EffectKind.OTHER),
)


def effect_kind(path: str) -> EffectKind | None:
    """Return what a POST to this path creates; None if the route ignores idempotency keys."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(path)), None)


@dataclass(slots=True)
class _Attempts:
    """The attempts in this process with one key."""

    count: int = 0
    is_one_at_work: bool = False
    claiming: asyncio.Lock = field(default_factory=asyncio.Lock)


class IdempotentRequests:
    """Wraps the application. Requests without a key pass through."""

    def __init__(self, app: ASGIApp, services: ApiServices) -> None:
        self._app = app
        self._services = services
        self._keys = services.idempotency_keys
        secret, previous = services.settings.jwt_secret, services.settings.jwt_previous_secret
        self._answers = AnswerCipher(secret.get_secret_value())
        # By user, caller and key.
        self._attempts: dict[tuple[object, ...], _Attempts] = {}
        self._hash_keys = [derived_key(one.get_secret_value(), _HASHES) for one in (secret, previous) if one]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        given = next((value for name, value in scope["headers"] if name == _RAW_HEADER), None) if is_post else None
        kind = None if given is None else effect_kind(scope["path"])
        if given is None or kind is None:
            await self._app(scope, receive, send)
            return
        try:
            await self._answer_once(kind, _parse_key(given.decode("latin-1")), scope, receive, send)
        except Exception as error:
            if not scope["path"].startswith(_OPENAI):
                raise
            await error_response(error, where=f"POST {scope['path']}")(scope, receive, send)

    async def _answer_once(self, kind: EffectKind, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        principal = await authenticate(request, self._services)
        if found := _WORKSPACE.fullmatch(scope["path"]):
            scope["path_params"] = {"workspace_id": found[1]}
        if may_be_large(request):
            await admit_large(request, principal)
        body = await request.body()
        # Not the user alone: a login and an API key of theirs may do different things.
        caller_id, key_hash = principal.key_id or principal.user_id, sha256(key.encode()).digest()
        with self._attempts_at(principal.user_id, caller_id, key_hash) as attempts:
            # One after the other: which of them is at work is known when the next one claims.
            async with attempts.claiming:
                claimed = await self._keys.claim(
                    principal.user_id,
                    caller_id,
                    token_version=principal.token_version,
                    key_hash=key_hash,
                    request_hashes=self._request_hashes(scope, body)
                    if len(body) <= _HASHED_AT_ONCE
                    else await asyncio.to_thread(self._request_hashes, scope, body),
                    kind=kind,
                    at_work=attempts.is_one_at_work,
                )
                match claimed.state:
                    case ClaimState.REUSED:
                        raise KeyReused(
                            f"This {HEADER} was used for another request (method, address and body). Use a new key "
                            "for each request, and the same one only to repeat it."
                        )
                    case ClaimState.RUNNING:
                        raise _in_use()
                    case ClaimState.FULL:
                        raise HTTPException(
                            429,
                            f"You have used {MOST_KEYS:,} idempotency keys within a day, the limit.",
                            {"Retry-After": "3600"},
                        )
                attempts.is_one_at_work = True
            try:
                await self._answer(claimed, principal, request, scope, replayed(body, receive), send)
            finally:
                attempts.is_one_at_work = False

    async def _answer(
        self,
        claimed: ClaimedKey,
        principal: Principal,
        request: Request,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            known = await self._known_answer(claimed, principal, scope) if claimed.claim.is_retry else None
        except BaseException:
            # Else the key would be in use until this process ends.
            await asyncio.shield(self._give_back(claimed.claim))
            raise
        if known is not None:
            await replay(known, request)(scope, receive, send)
            return
        await self._run(claimed.claim, scope, receive, send)

    @contextmanager
    def _attempts_at(self, *key: object) -> Iterator["_Attempts"]:
        """Yield what is known here about the attempts with a key, as long as there are any.

        The database alone does not know: if it is away when an attempt ends, the key still names this process.
        """
        attempts = self._attempts.setdefault(key, _Attempts())
        attempts.count += 1
        try:
            yield attempts
        finally:
            attempts.count -= 1
            if not attempts.count:
                del self._attempts[key]

    def _request_hashes(self, scope: Scope, body: bytes) -> list[bytes]:
        """Return the hash of a request, and that with the secret before. A plain one would confirm a guessed body."""
        head = "\n".join((scope["method"], scope["path"], scope["query_string"].decode("latin-1")))
        request = sha256(head.encode()).digest() + body
        return [hmac.digest(key, request, "sha256") for key in self._hash_keys]

    async def _known_answer(self, claimed: ClaimedKey, principal: Principal, scope: Scope) -> KeptAnswer | None:
        """Return the answer of an earlier attempt, stored or made again; None if the request is to run."""
        claim = claimed.claim
        if claimed.answer is not None and (stored := self._answers.decrypt(claimed.answer, claim)) is not None:
            await self._require_role(principal, scope, stored.role)
            return stored
        await self._require_role(principal, scope, WorkspaceRole.VIEWER)
        answer = await self._earlier_answer(claimed.state, claim, principal, scope)
        if answer is not None:
            await self._keys.save(claim, self._answers.encrypt(answer, claim))
        return answer

    async def _require_role(self, principal: Principal, scope: Scope, needs: WorkspaceRole) -> None:
        """Check that someone who lost their role in the workspace does not read an earlier answer."""
        if (workspace_id := scope.get("path_params", {}).get("workspace_id")) is not None:
            workspace = await self._services.workspaces.get(tenant_for(principal, workspace_id_of(workspace_id)))
            require(workspace.role, needs)

    async def _earlier_answer(
        self, state: ClaimState, claim: RequestClaim, principal: Principal, scope: Scope
    ) -> KeptAnswer | None:
        """Return the answer of an attempt whose answer was lost; None if the request can run, or finds it itself.

        Raises:
            AnswerNotKept: It took effect, and the answer cannot be made again.
            EffectUnknown: It may have taken effect.
        """
        if claim.kind is EffectKind.CALL or scope["path"].startswith(_OPENAI):
            return None
        if claim.kind is EffectKind.ELSEWHERE and not claim.was_answered:
            raise EffectUnknown(
                "The server stopped while it answered the first request with this key. It is unknown whether it took "
                "effect: look, then send it with a new key if it did not."
            )
        if state is ClaimState.RETRY:
            return None
        workspace_id = scope.get("path_params", {}).get("workspace_id")
        tenant = tenant_for(principal, claim.effect_id if workspace_id is None else workspace_id_of(workspace_id))
        if (load := _LOADERS.get(claim.kind)) is not None:
            try:
                status, made = await load(self._services, tenant, claim.effect_id)
                return KeptAnswer(status, "application/json", made.model_dump_json().encode())
            except NotFound:
                # What precedes a run, such as its session, is no effect of its own; a session may have been undone.
                if claim.kind in _UNDONE and state is ClaimState.COMMITTED:
                    return None
        raise AnswerNotKept(
            "The first request with this key took effect, and its answer was lost, or not kept because it has a "
            "secret. Look at what it made before you send another."
        )

    async def _run(self, claim: RequestClaim, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request, and store its answer before it is sent."""
        taken = TakenAnswer(send)
        try:
            with claimed_by(claim):
                try:
                    await self._app(scope, receive, taken.send)
                except Exception as error:
                    if taken.is_stream or taken.messages:
                        raise
                    await answer_to(error, where=f"POST {scope['path']}")(scope, receive, taken.send)
        except BaseException:
            await asyncio.shield(self._give_up(claim))
            raise
        is_ours = claim.was_answered or await asyncio.shield(self._end(claim, taken.answer(claim), scope["path"]))
        if not is_ours and not taken.is_stream:
            # This process was suspended so long that another one went on. The retry of the client gets its answer.
            raise _in_use()
        for message in taken.messages:
            await send(message)

    async def _end(self, claim: RequestClaim, answer: KeptAnswer | None, path: str) -> bool:
        """Store what became of this attempt. Returns False if another one has begun meanwhile."""
        try:
            match ending(claim.kind, answer):
                case "abandon":
                    return await self._keys.abandon(claim)
                case "release" if await self._keys.release(claim):
                    return True
            assert answer is not None
            is_openai = path.startswith(_OPENAI)
            looks_again = is_openai or claim.kind is EffectKind.SESSION
            if answer.status >= (400 if looks_again else 500) and claim.kind is not EffectKind.CALL:
                return await self._keys.abandon(claim)
            # The routes of OpenAI's API have checks of their own, and find the run again.
            is_kept = (
                claim.kind is not EffectKind.SHOWN_ONCE and not is_openai and len(answer.body) <= _MOST_ANSWER_BYTES
            )
            return await self._keys.save(claim, self._answers.encrypt(answer, claim) if is_kept else None)
        except OperationalError as error:
            # The client gets its answer. Whether it was stored is found out by a retry.
            _log.warning("idempotency.not_stored", error=str(error))
            return True

    async def _give_up(self, claim: RequestClaim) -> None:
        """Let the next attempt find out what became of this one, unless nothing can have become of it."""
        if claim.kind in (EffectKind.CALL, EffectKind.ELSEWHERE):
            await self._give_back(claim)
            return
        try:
            if not await self._keys.release(claim):
                await self._keys.abandon(claim)
        except OperationalError as error:
            _log.warning("idempotency.not_stored", error=str(error))

    async def _give_back(self, claim: RequestClaim) -> None:
        try:
            await self._keys.abandon(claim)
        except OperationalError as error:
            _log.warning("idempotency.not_stored", error=str(error))


def _in_use() -> KeyInUse:
    return KeyInUse(f"Another request with this {HEADER} is being answered. Try again in a moment.")


def _parse_key(given: str) -> str:
    """Return the key. It may be quoted, as a string of a structured field is."""
    key = given.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not _KEY.fullmatch(key):
        raise BadArguments({HEADER: "Expected 1 to 255 visible ASCII characters, such as a UUID"})
    return key


_Loader = Callable[[ApiServices, Tenant, UUID], Awaitable[tuple[int, OutModel]]]


async def _load_run(services: ApiServices, tenant: Tenant, run_id: UUID) -> tuple[int, OutModel]:
    return 202, RunOut.model_validate(await services.run_service.runs.get(tenant, RunId(run_id)))


async def _load_session(services: ApiServices, tenant: Tenant, session_id: UUID) -> tuple[int, OutModel]:
    session = SessionOut.model_validate(await services.sessions.get(tenant, SessionId(session_id)))
    if session.package is not None:
        raise AnswerNotKept("The session was created, and its package's document may not have been written.")
    return 201, session


async def _load_workspace(services: ApiServices, tenant: Tenant, _: UUID) -> tuple[int, OutModel]:
    return 201, WorkspaceOut.model_validate(await services.workspaces.get(tenant))


async def _load_agent(services: ApiServices, tenant: Tenant, agent_id: UUID) -> tuple[int, OutModel]:
    return 201, AgentOut.model_validate(await services.agents.get(tenant, AgentId(agent_id)))


async def _load_schedule(services: ApiServices, tenant: Tenant, schedule_id: UUID) -> tuple[int, OutModel]:
    return 201, ScheduleOut.model_validate(await services.schedules.rows.get(tenant, ScheduleId(schedule_id)))


async def _load_mcp_server(services: ApiServices, tenant: Tenant, server_id: UUID) -> tuple[int, OutModel]:
    return 201, McpServerOut.model_validate(await services.toolbox.rows.get(tenant, McpServerId(server_id)))


_UNDONE: Final = frozenset({EffectKind.RUN, EffectKind.SESSION})
_LOADERS: Final[Mapping[EffectKind, _Loader]] = {
    EffectKind.RUN: _load_run,
    EffectKind.SESSION: _load_session,
    EffectKind.WORKSPACE: _load_workspace,
    EffectKind.AGENT: _load_agent,
    EffectKind.SCHEDULE: _load_schedule,
    EffectKind.MCP_SERVER: _load_mcp_server,
}


_Responses = Mapping[int | str, Mapping[str, Any]]


def describe(document: dict[str, Any], responses: _Responses, *, elsewhere: _Responses) -> None:
    """Add the header and its errors to every POST of the OpenAPI document that has an effect.

    Args:
        elsewhere: More errors of those whose effect another node may have.
    """
    for path, operations in document["paths"].items():
        operation = operations.get("post")
        if operation is None or (kind := effect_kind(path)) is None:
            continue
        operation.setdefault("parameters", []).append(
            {
                "name": HEADER,
                "in": "header",
                "required": False,
                "description": "Repeats are answered like the first request with this key, for a day, and have no "
                "further effect.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255, "title": HEADER},
            }
        )
        for status, described in (*responses.items(), *(elsewhere.items() if kind is EffectKind.ELSEWHERE else ())):
            known = operation["responses"].setdefault(str(status), json.loads(json.dumps(described)))
            known["content"]["application/json"].setdefault("examples", {}).update(
                described["content"]["application/json"]["examples"]
            )
