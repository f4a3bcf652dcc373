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
    created_at: datetime
    updated_at: datetime


class ModelOut(OutModel):
    id: str
    name: str
    context_window: int | None
    supports_tools: bool
    max_output_tokens: int | None
