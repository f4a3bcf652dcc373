"""Access tokens: short-lived JWTs that say who someone is, and nothing about what they may do."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import jwt

from toolcrib.domain.errors import Unauthenticated
from toolcrib.domain.ids import UserId
from toolcrib.settings import Settings

INVALID: Final = "No valid token found in Authorization header or cookie"
EXPIRED: Final = "This access token has expired. Refresh it, or log in again."

# A constant, never the token's own word: that is how "none" and confused keys get in.
_ALGORITHM: Final = "HS256"
_ISSUER: Final = "toolcrib"
_AUDIENCE: Final = "toolcrib-api"
_REQUIRED: Final = ["exp", "iat", "iss", "aud", "sub", "ver"]
# Clocks of two nodes may differ by this much.
_LEEWAY_SECONDS: Final = 5
_REMEMBERED: Final = 4_096


@dataclass(frozen=True, slots=True)
class Claims:
    """What a valid token says. ``version`` is compared with the person's in the database trip of the call."""

    user_id: UserId
    version: int
    expires_at: float
    # Of a token that has one, to tell it from the others of the same second.
    id: str | None = None


class AccessTokens:
    """Issues and verifies. Tokens signed with the previous secret are taken while they live."""

    def __init__(
        self,
        secret: str,
        *,
        previous: str | None = None,
        minutes: int = 15,
        audience: str = _AUDIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = tuple(key.encode() for key in (secret, previous) if key)
        self._audience = audience
        self._clock = clock
        self._jwt = jwt.PyJWT(options={"require": _REQUIRED, "strict_aud": True, "enforce_minimum_key_length": True})
        self._verified: dict[str, Claims] = {}
        self.lifetime_seconds = minutes * 60

    @classmethod
    def from_settings(cls, settings: Settings) -> "AccessTokens":
        previous = settings.jwt_previous_secret
        return cls(
            settings.jwt_secret.get_secret_value(),
            previous=previous.get_secret_value() if previous else None,
            minutes=settings.access_token_minutes,
        )

    def issue(self, user_id: UserId, version: int, *, id_: str | None = None) -> str:
        now = int(self._clock())
        claims = {
            "sub": str(user_id),
            "ver": version,
            "iat": now,
            "exp": now + self.lifetime_seconds,
            "iss": _ISSUER,
            "aud": self._audience,
            **({"jti": id_} if id_ else {}),
        }
        return self._jwt.encode(claims, self._keys[0], algorithm=_ALGORITHM)

    def verify(self, token: str) -> Claims:
        """Raises Unauthenticated unless the token is ours, whole and alive."""
        # The signature of a token that was verified once needs no second look; its age does.
        claims = self._verified.get(token)
        if claims is None:
            claims = _claims(self._decode(token))
            self._remember(token, claims)
        if claims.expires_at + _LEEWAY_SECONDS <= self._clock():
            raise Unauthenticated(EXPIRED)
        return claims

    def _decode(self, token: str) -> dict[str, Any]:
        for key in self._keys:
            try:
                return self._jwt.decode(
                    token,
                    key,
                    algorithms=[_ALGORITHM],
                    audience=self._audience,
                    issuer=_ISSUER,
                    leeway=_LEEWAY_SECONDS,
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.ExpiredSignatureError:
                raise Unauthenticated(EXPIRED) from None
            except jwt.PyJWTError:
                raise Unauthenticated(INVALID) from None
        raise Unauthenticated(INVALID)

    def _remember(self, token: str, claims: Claims) -> None:
        if len(self._verified) >= _REMEMBERED:
            # The oldest goes: dictionaries keep the order in which they were filled.
            del self._verified[next(iter(self._verified))]
        self._verified[token] = claims


def _claims(said: dict[str, Any]) -> Claims:
    if type(said["ver"]) is not int:
        raise Unauthenticated(INVALID)
    try:
        return Claims(UserId(UUID(said["sub"])), said["ver"], float(said["exp"]), said.get("jti"))
    except ValueError:
        raise Unauthenticated(INVALID) from None
