"""Accounts, logins and API keys on the wire."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, SecretStr

from toolcrib.schemas.schema_base import Email, InModel, Name, OutModel

Password = Annotated[SecretStr, Field(min_length=12, max_length=1024, examples=["correct horse battery staple"])]


class RegisterIn(InModel):
    email: Email
    password: Password
    full_name: Name | None = Field(default=None, examples=["Ada Lovelace"])
    setup: SecretStr | None = Field(
        default=None,
        max_length=2_000,
        description="The part after `#setup=` in the link for creating the first account.",
    )


class LoginIn(InModel):
    email: Email
    # No minimum length: a wrong password is a wrong password.
    password: SecretStr = Field(max_length=1024, examples=["correct horse battery staple"])


class RefreshIn(InModel):
    refresh_token: str | None = Field(
        default=None, max_length=200, description="By default, the refresh token in the cookie."
    )


class PasswordChangeIn(InModel):
    # No minimum length: a wrong password is a wrong password.
    current_password: SecretStr = Field(max_length=1024, examples=["correct horse battery staple"])
    new_password: Password


class PasswordResetIn(InModel):
    token: SecretStr = Field(max_length=200, description="The part after `#reset=` in a reset link.")
    password: Password


class LoginOut(OutModel):
    """A login: on one device, until it is ended or not continued for long."""

    id: UUID
    created_at: datetime
    last_used_at: datetime = Field(description="When its refresh token was issued; each can be used once.")
    expires_at: datetime = Field(description="When it ends if it is not continued.")
    address: str = Field(description="The address that last used it.", examples=["192.0.2.7"])
    client: str = Field(description="The User-Agent that last used it.", examples=["Mozilla/5.0 (X11; Linux x86_64)"])
    is_current: bool = Field(description="Whether it is the login of this request's refresh cookie.")


class LogoutIn(RefreshIn):
    everywhere: bool = Field(default=False, description="End all logins of this user. Requires an access token.")


class LoginLinkIn(InModel):
    link: SecretStr = Field(max_length=2_000, description="The part after `#login=` in a login link.")


class RegistrationOut(OutModel):
    open: bool
    secure_cookies: bool = Field(description="Whether browsers keep a login only if they reach the server over HTTPS.")


class UserOut(OutModel):
    id: UUID = Field(validation_alias="user_id")
    email: str = Field(examples=["ada@example.com"])
    full_name: str | None = Field(examples=["Ada Lovelace"])
    created_at: datetime
    is_administrator: bool = Field(
        default=False, description="May manage the accounts of this server. Gives no access to workspaces."
    )


class AccountOut(UserOut):
    """An account, as administrators see it."""

    is_disabled: bool = Field(description="Whether the person cannot log in.")


class AccountUpdate(InModel):
    is_disabled: bool | None = Field(
        default=None, description="True ends all logins, API keys, connections and runs of the person."
    )
    is_administrator: bool | None = None


class PasswordResetOut(OutModel):
    link: str = Field(
        description="Lets the person set a new password, once. It is not shown again.",
        examples=["https://toolcrib.example.com/#reset=tcp_…"],
    )
    expires_at: datetime


class TokenOut(OutModel):
    """The tokens of a login."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "access_token": "eyJhbGciOiJIUzI1NiIs…",
                    "token_type": "bearer",
                    "expires_in": 900,
                    "refresh_token": "tcr_…",
                }
            ]
        }
    )

    access_token: str
    token_type: Literal["bearer"] = "bearer"  # noqa: S105 - not a password
    expires_in: int = Field(description="Lifetime in seconds.")
    refresh_token: str = Field(description="Can be used once.")


class ApiKeyCreate(InModel):
    name: Name = Field(examples=["laptop"])
    expires_in_days: int | None = Field(default=None, ge=1, le=3650, description="By default, the key does not expire.")

    @property
    def expires_at(self) -> datetime | None:
        """When the key expires; None if never."""
        return datetime.now(UTC) + timedelta(days=self.expires_in_days) if self.expires_in_days else None


class ApiKeyOut(OutModel):
    id: UUID
    name: str = Field(examples=["laptop"])
    hint: str = Field(description="The first characters of the key.", examples=["tck_9fQ2xA"])
    workspace_id: UUID | None = Field(description="The agent's workspace. Null for a user's key.")
    agent_id: UUID | None
    created_at: datetime
    expires_at: datetime | None


class ApiKeyCreatedOut(OutModel):
    key: ApiKeyOut
    secret: str = Field(description="The API key. It is not shown again.", examples=["tck_9fQ2xA…"])
