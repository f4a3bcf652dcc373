"""Access tokens: short-lived JWTs that identify a user but carry no permissions. Also login links and setup links."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final
from uuid import UUID

import jwt

from toolcrib.core.errors import Forbidden, Unauthenticated
from toolcrib.core.ids import UserId
from toolcrib.settings import Settings

INVALID: Final = "No valid token found in Authorization header or cookie"
EXPIRED: Final = "This access token has expired. Refresh it, or log in again."

# A constant, never the token's own ``alg``: that would allow "none" and key confusion.
_ALGORITHM: Final = "HS256"
_ISSUER: Final = "toolcrib"
ACCESS_AUDIENCE: Final = "toolcrib-api"
_REQUIRED: Final = ["exp", "iat", "iss", "aud", "sub", "ver"]
# Allowed clock difference between two nodes.
_LEEWAY_SECONDS: Final = 5
_REMEMBERED: Final = 4_096


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """The claims of a valid token. ``version`` is compared with the user's in the database transaction of the call."""

    user_id: UserId
    version: int
    expires_at: float
    # Distinguishes tokens issued in the same second, where that matters.
    id: str | None = None


class AccessTokens:
    """Issues and verifies tokens. Accepts tokens signed with the previous secret until they expire."""

    def __init__(
        self,
        secret: str,
        *,
        previous: str | None = None,
        minutes: int = 15,
        audience: str = ACCESS_AUDIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = tuple(key.encode() for key in (secret, previous) if key)
        self._audience = audience
        self._clock = clock
        self._jwt = jwt.PyJWT(options={"require": _REQUIRED, "strict_aud": True, "enforce_minimum_key_length": True})
        self._verified: dict[str, TokenClaims] = {}
        self.lifetime_seconds = minutes * 60

    @classmethod
    def from_settings(cls, settings: Settings) -> "AccessTokens":
        """Create it with the secrets and lifetime of the settings."""
        previous = settings.jwt_previous_secret
        return cls(
            settings.jwt_secret.get_secret_value(),
            previous=previous.get_secret_value() if previous else None,
            minutes=settings.access_token_minutes,
        )

    def issue(self, user_id: UserId, version: int, *, id_: str | None = None) -> str:
        """Issue a token for a user."""
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

    def verify(self, token: str) -> TokenClaims:
        """Return the claims of a valid token.

        Raises:
            Unauthenticated: The token is malformed, expired, or signed with another secret.
        """
        # The signature of a token is verified once; its age is checked every time.
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

    def _remember(self, token: str, claims: TokenClaims) -> None:
        if len(self._verified) >= _REMEMBERED:
            # Drop the oldest: dictionaries keep insertion order.
            del self._verified[next(iter(self._verified))]
        self._verified[token] = claims


def _claims(payload: dict[str, Any]) -> TokenClaims:
    if type(payload["ver"]) is not int:
        raise Unauthenticated(INVALID)
    try:
        return TokenClaims(UserId(UUID(payload["sub"])), payload["ver"], float(payload["exp"]), payload.get("jti"))
    except ValueError:
        raise Unauthenticated(INVALID) from None


MINUTES: Final = 2
LOGIN_LINK_AUDIENCE: Final = "toolcrib-login"
_REFUSED: Final = "This login link was already used or has expired. `toolcrib web` prints a new one."


SETUP_MINUTES: Final = 60
SETUP_AUDIENCE: Final = "toolcrib-setup"
_NOBODY: Final = UserId(UUID(int=0))


class SetupLinks:
    """Issues and checks the secrets of setup links, with which the operator creates a server's first account."""

    def __init__(self, secret: str, *, clock: Callable[[], float] = time.time) -> None:
        self._tokens = AccessTokens(secret, minutes=SETUP_MINUTES, audience=SETUP_AUDIENCE, clock=clock)

    def issue(self) -> str:
        """Issue a secret."""
        return self._tokens.issue(_NOBODY, 0)

    def check(self, secret: str) -> None:
        """Raise Forbidden if the secret is invalid or expired."""
        try:
            self._tokens.verify(secret)
        except Unauthenticated:
            raise Forbidden("This setup link has expired. Restart the server to get a new one.") from None


class LoginLinks:
    """Issues the secrets of login links for people with access to the server's machine. Each link works once."""

    def __init__(self, secret: str, *, node: str, clock: Callable[[], float] = time.time) -> None:
        self._tokens = AccessTokens(secret, minutes=MINUTES, audience=f"{LOGIN_LINK_AUDIENCE} {node}", clock=clock)
        self._clock = clock
        self._began = int(clock())
        # Used secrets, with the time until which they must be remembered.
        self._used: dict[str, float] = {}

    def issue(self, user_id: UserId, version: int) -> str:
        """Issue a secret for a user."""
        return self._tokens.issue(user_id, version, id_=token_hex(8))

    def redeem(self, secret: str) -> TokenClaims:
        """Return the claims of a login link and invalidate it.

        Raises:
            Unauthenticated: The link is invalid, expired or used.
        """
        try:
            claims = self._tokens.verify(secret)
        except Unauthenticated:
            raise Unauthenticated(_REFUSED) from None
        now = self._clock()
        self._used = {one: until for one, until in self._used.items() if until > now}
        is_older_than_us = claims.expires_at - self._tokens.lifetime_seconds < self._began
        if claims.id is None or claims.id in self._used or is_older_than_us:
            raise Unauthenticated(_REFUSED)
        # Twice the lifetime, because clocks may differ a little.
        self._used[claims.id] = now + 2 * self._tokens.lifetime_seconds
        return claims
