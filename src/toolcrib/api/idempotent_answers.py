"""Answers of requests with an ``Idempotency-Key``: taken before they are sent, kept encrypted, and sent again."""

import json
import secrets
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fastapi import Request, Response
from starlette.types import Message, Send

from toolcrib.api.session_stream import encoded
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.idempotency import EffectKind, RequestClaim

REPLAYED: Final = "Idempotent-Replayed"
_NONCE_BYTES: Final = 12
_STREAM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """A whole answer. Who reads it again must still have the role that the request needed."""

    status: int
    media_type: str
    body: bytes
    role: WorkspaceRole = WorkspaceRole.VIEWER

    @property
    def code(self) -> str:
        """The code of an error, in our envelope or in OpenAI's."""
        try:
            body = json.loads(self.body)
            return str(body.get("code") or body["error"]["code"]).upper()
        except (ValueError, KeyError, TypeError, AttributeError):
            return ""


# Nothing was begun, so that the same request can be sent again.
_NOT_BEGUN: Final = frozenset(
    {
        "OVERLOADED",
        "QUARANTINED",
        "RATE_LIMITED",
        "RATE_LIMIT_EXCEEDED",
        "INVALID_TOKEN",
        "INVALID_API_KEY",
        "FORBIDDEN",
    }
)


def ending(kind: EffectKind, answer: KeptAnswer | None) -> str:
    """Return what becomes of the key: `save`, `release` (and `save` if something was committed) or `abandon`."""
    if answer is None:
        return "abandon"
    if answer.status < 400:
        return "save"
    match kind:
        case EffectKind.CALL:
            # A tool may have acted before it failed. After these two, its row says more than the answer.
            may_look = answer.status in (500, 503)
            return "release" if answer.code in _NOT_BEGUN else "abandon" if may_look else "save"
        case EffectKind.ELSEWHERE:
            if answer.code in _NOT_BEGUN:
                return "release"
            return "abandon" if answer.status >= 500 else "save" if answer.code == "INTERRUPTED" else "release"
        case _:
            return "release"


class TakenAnswer:
    """Takes the messages of an answer; those of a stream are sent at once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.messages: list[Message] = []
        self.is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            content_type = dict(message["headers"]).get(b"content-type", b"")
            self.is_stream = content_type.startswith(_STREAM.encode())
        if self.is_stream:
            await self._send(message)
        else:
            self.messages.append(message)

    def answer(self, claim: RequestClaim) -> KeptAnswer | None:
        """Return the whole answer, or None if there is none to keep."""
        if self.is_stream:
            if claim.streamed is None:
                return None
            return KeptAnswer(claim.streamed[0], "application/json", claim.streamed[1], claim.role)
        if not self.messages:
            return None
        start, *parts = self.messages
        media_type = dict(start["headers"]).get(b"content-type", b"").decode("latin-1")
        return KeptAnswer(start["status"], media_type, b"".join(part.get("body", b"") for part in parts), claim.role)


@dataclass(slots=True)
class AnswerCipher:
    """Encrypts answers, which may have secrets. Each key of a client has its own, which is not in the database."""

    secret: str = field(repr=False)

    def encrypt(self, answer: KeptAnswer, claim: RequestClaim) -> bytes:
        head = json.dumps({"status": answer.status, "type": answer.media_type, "role": answer.role}).encode()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher(claim).encrypt(nonce, head + b"\n" + answer.body, None)

    def decrypt(self, data: bytes, claim: RequestClaim) -> KeptAnswer | None:
        try:
            plain = self._cipher(claim).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None)
        except InvalidTag:
            # The server's secret was changed meanwhile.
            return None
        head, _, body = plain.partition(b"\n")
        known = json.loads(head)
        return KeptAnswer(known["status"], known["type"], body, WorkspaceRole(known["role"]))

    def _cipher(self, claim: RequestClaim) -> AESGCM:
        info = b"toolcrib idempotency answer v1" + claim.user_id.bytes + claim.caller_id.bytes + claim.key_hash
        return AESGCM(derived_key(self.secret, info))


def derived_key(secret: str, info: bytes) -> bytes:
    """Return a key of the server's secret for one purpose."""
    return HKDF(SHA256(), 32, salt=None, info=info).derive(secret.encode())


def replay(answer: KeptAnswer, request: Request) -> Response:
    """Return a stored answer. A client that wants a stream gets one with the end only."""
    headers = {REPLAYED: "true"}
    if _STREAM in request.headers.get("accept", "") and request.url.path.endswith("/tools"):
        end = {"type": "end", "payload": {"status": answer.status, "body": json.loads(answer.body)}}
        return Response(encoded(end), media_type=_STREAM, headers=headers)
    response = Response(answer.body, answer.status, headers)
    if answer.media_type:
        response.headers["content-type"] = answer.media_type
    return response
