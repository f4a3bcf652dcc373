"""Links by which someone logs in without a password: for who runs the server on their own machine, and has none.

Only who holds the server's secret can make one. It is good for two minutes and, in one process, for one login.
"""

import time
from collections.abc import Callable
from secrets import token_hex
from typing import Final

from toolcrib.domain.errors import Unauthenticated
from toolcrib.domain.ids import UserId
from toolcrib.server.tokens import AccessTokens, Claims

MINUTES: Final = 2
_AUDIENCE: Final = "toolcrib-login"
_REFUSED: Final = "This link was used already, or is too old. `toolcrib web` shows a new one."


class LoginLinks:
    """Issues the secret part of links, and takes each once."""

    def __init__(self, secret: str, *, clock: Callable[[], float] = time.time) -> None:
        self._tokens = AccessTokens(secret, minutes=MINUTES, audience=_AUDIENCE, clock=clock)
        self._clock = clock
        # Until when those that were used must be remembered.
        self._used: dict[str, float] = {}

    def issue(self, user_id: UserId, version: int) -> str:
        return self._tokens.issue(user_id, version, id_=token_hex(8))

    def redeem(self, secret: str) -> Claims:
        """Whose link it is; Unauthenticated if it is not ours, too old, or was used before."""
        try:
            claims = self._tokens.verify(secret)
        except Unauthenticated:
            raise Unauthenticated(_REFUSED) from None
        now = self._clock()
        self._used = {one: until for one, until in self._used.items() if until > now}
        if claims.id is None or claims.id in self._used:
            raise Unauthenticated(_REFUSED)
        # Twice as long as it lives: clocks may differ a little.
        self._used[claims.id] = now + 2 * self._tokens.lifetime_seconds
        return claims
