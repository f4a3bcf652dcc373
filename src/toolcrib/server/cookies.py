"""The two cookies of a browser's login: out of reach of scripts, and not sent along by other sites' forms."""

from typing import Final

from fastapi import Response

from toolcrib.settings import Settings

ACCESS: Final = "access_token"
REFRESH: Final = "refresh_token"
# The refresh token travels only where it is used.
_REFRESH_PATH: Final = "/api/v1/auth"
_DAY: Final = 24 * 60 * 60


def set_login(response: Response, settings: Settings, *, access_token: str, refresh_token: str) -> None:
    _set(response, settings, ACCESS, access_token, "/", settings.access_token_minutes * 60)
    _set(response, settings, REFRESH, refresh_token, _REFRESH_PATH, settings.refresh_token_days * _DAY)


def clear_login(response: Response, settings: Settings) -> None:
    _set(response, settings, ACCESS, "", "/", 0)
    _set(response, settings, REFRESH, "", _REFRESH_PATH, 0)


def _set(response: Response, settings: Settings, name: str, value: str, path: str, max_age: int) -> None:
    response.set_cookie(
        name, value, max_age=max_age, path=path, secure=settings.secure_cookies, httponly=True, samesite="lax"
    )
