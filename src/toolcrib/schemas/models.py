"""Models and the credentials of their providers on the wire."""

from datetime import datetime
from typing import Literal

from pydantic import Field, HttpUrl, SecretStr

from toolcrib.schemas.schema_base import InModel, OutModel


class ProviderCredentialsIn(InModel):
    """Credentials for a provider. The secret is stored encrypted and never shown again."""

    secret: SecretStr = Field(default=SecretStr(""), max_length=10_000, description="The provider's API key.")
    base_url: HttpUrl | None = Field(default=None, description="The URL of a server with the same API as the provider.")
    check: bool = Field(default=True, description="Check the credentials with the provider before saving them.")


class ProviderCredentialsOut(OutModel):
    provider: str
    kind: Literal["models", "search"] = Field(description="What the credentials are for: models or web search.")
    base_url: str | None
    at_once: int | None = Field(
        description="How many model requests run at once: your limit or, if lower, the server's."
    )
    per_minute: int | None = Field(description="How many model requests start within a minute: the lower limit again.")
    created_at: datetime
    updated_at: datetime


class RequestLimitsIn(InModel):
    """Limits of the model requests with your credentials, in all processes of the server together."""

    at_once: int | None = Field(default=None, ge=1, le=10_000, description="How many run at once. Null: any number.")
    per_minute: int | None = Field(
        default=None, ge=1, le=10_000, description="How many start within a minute. Null: any number."
    )


class ModelOut(OutModel):
    id: str
    name: str
    context_window: int | None
    supports_tools: bool
    max_output_tokens: int | None
