"""Settings of the server, from the environment (``TOOLCRIB_…``) or a file named by ``TOOLCRIB_ENV_FILE``."""

import os
import socket
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from toolcrib.core.errors import Misconfigured

MINIMUM_SECRET_BYTES = 32
# Secrets that appear in documentation and examples everywhere, our own included.
_SAMPLE_SECRETS = ("change", "example", "secret-key", "your-secret", "insecure", "0123456789", "password")


class Settings(BaseSettings):
    """Everything that an operator may set. No default weakens security."""

    model_config = SettingsConfigDict(
        env_prefix="TOOLCRIB_", env_file=os.environ.get("TOOLCRIB_ENV_FILE"), extra="ignore", frozen=True
    )

    database_url: str = Field(description="The server's database, as the role toolcrib_app.")
    system_database_url: str | None = Field(
        default=None,
        description="The same database as toolcrib_system; by default database_url with that role.",
    )
    owner_database_url: str | None = Field(
        default=None, description="The same database as its owner; only `toolcrib db upgrade` uses it."
    )
    pool_size: int = Field(default=16, ge=2, le=200, description="Database connections of one server process.")

    jwt_secret: SecretStr = Field(description="Signs access tokens; at least 32 random bytes.")
    jwt_previous_secret: SecretStr | None = Field(
        default=None, description="Still accepted while tokens signed with it live: for changing the secret."
    )
    access_token_minutes: int = Field(default=15, ge=1, le=24 * 60, description="How long an access token lives.")
    refresh_token_days: int = Field(default=30, ge=1, le=365, description="How long a login lasts without being used.")
    audit_key: SecretStr = Field(description="Seals the book; at least 32 random bytes, kept outside the database.")
    seal_seconds: float = Field(default=10, gt=0, description="How often the book is sealed.")
    audit_checkpoint_file: Path | None = Field(
        default=None,
        description="A file to which signed checkpoints of the audit log are appended, best on another disk.",
    )
    audit_checkpoint_url: str | None = Field(
        default=None, description="An address to which signed checkpoints of the audit log are posted, as JSON."
    )
    audit_checkpoint_seconds: float = Field(default=3600, gt=0, description="How often checkpoints are exported.")

    credentials_key: SecretStr | None = Field(
        default=None,
        description="Encrypts users' keys to model providers; 32 random bytes or more. By default the token secret.",
    )
    credentials_previous_key: SecretStr | None = Field(
        default=None, description="Still opens what was encrypted with it: for changing the key."
    )
    private_model_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Model servers inside this network that users may reach, as host:port, comma-separated; * for all.",
    )
    private_mcp_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="MCP servers inside this network that may be used, as host:port, comma-separated; * for all.",
    )
    mcp_programs: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(),
        description="Folders with programs of MCP servers, comma-separated: visible in the sandbox where they are.",
    )
    model_proxy: str | None = Field(default=None, description="A proxy through which model providers are reached.")

    keep_versions_days: float | None = Field(
        default=None, gt=0, description="Versions older than this are forgotten, heads aside; by default none are."
    )
    trash_bytes: int = Field(
        default=1_000_000_000,
        ge=0,
        description="How much a workspace's trash holds of displaced files that the history does not keep.",
    )
    trash_days: float = Field(default=7, gt=0, description="How long they are kept there; the oldest go first.")
    lease_seconds: float = Field(
        default=15, ge=1, description="A process that is silent for so long is believed dead; its runs are taken over."
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        le=100,
        description="A run or an approved call is given up after so many attempts that ended the server.",
    )
    approval_seconds: float = Field(
        default=7 * 86_400, ge=30, description="How long an approval or a question waits for a person."
    )
    collect_seconds: float = Field(default=3600, gt=0, description="How often unused contents are collected.")

    data_dir: Path = Field(default=Path("toolcrib-data"), description="Where the workspaces' files lie.")
    redis_url: str | None = Field(
        default=None, description="A Redis that all nodes share, for live events between them; one node needs none."
    )
    node: str = Field(default_factory=socket.gethostname, description="This node's name; its disk holds its trees.")
    host: str = Field(default="127.0.0.1", description="The address that is listened on.")
    port: int = Field(default=3000, ge=1, le=65535, description="The port that is listened on.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("localhost", "127.0.0.1", "[::1]"),
        description="Host headers that are answered; comma-separated.",
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Origins, besides the server's own, that may use cookies; comma-separated."
    )
    trusted_proxies: str | None = Field(
        default=None, description="Addresses whose X-Forwarded-For and -Proto are believed; comma-separated."
    )
    secure_cookies: bool = Field(default=True, description="Cookies travel over HTTPS only.")
    max_request_bytes: int = Field(default=20_000_000, gt=0, description="Larger requests are refused.")
    max_file_bytes: int = Field(default=10_000_000, gt=0, description="Larger files are not read or written by tools.")
    searxng_url: str | None = Field(
        default=None, description="A SearXNG that web_search asks first; it must give JSON."
    )
    brave_api_key: SecretStr | None = Field(default=None, description="For Brave Search, which web_search asks next.")
    brave_url: str = Field(
        default="https://api.search.brave.com/res/v1/web/search", description="Where Brave Search is asked."
    )
    search_seconds: float = Field(default=10, gt=0, le=60, description="How long one search engine may take.")
    stalls_file: Path | None = Field(
        default=None, description="Where stalls of the event loop are written, as JSON lines; for tests and diagnosis."
    )
    max_api_keys: int = Field(default=200, ge=1, description="The most API keys that a person may have.")
    max_workspaces: int = Field(default=1_000, ge=1, description="The most workspaces that a person may found.")
    max_workspace_files: int = Field(
        default=2_000_000, ge=1, description="The most files and folders that calls may make in a workspace."
    )
    max_workspace_bytes: int = Field(
        default=100_000_000_000,
        ge=1,
        description="The most bytes of contents, earlier versions included, that calls may add to a workspace.",
    )
    max_sessions: int = Field(default=100_000, ge=1, description="The most sessions of a workspace.")
    max_open_approvals: int = Field(
        default=1_000, ge=1, description="The most calls of a workspace that may wait for a person at once."
    )
    open_registration: bool = Field(
        default=False,
        description="Whether anyone who reaches the server may register. Otherwise `toolcrib user create` adds people.",
    )
    invitations: bool = Field(
        default=True,
        description="Whether owners of workspaces may invite people who have no account, by links that are good once.",
    )

    @field_validator(
        "allowed_hosts", "allowed_origins", "private_model_hosts", "private_mcp_hosts", "mcp_programs", mode="before"
    )
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @property
    def system_url(self) -> str:
        """The DSN of the system role."""
        return self.system_database_url or _with_user(self.database_url, "toolcrib_system")

    @property
    def audit_anchor(self) -> Path:
        """The file with the newest seal of this node, outside the database."""
        return self.data_dir / "audit-anchor.json"

    @property
    def audit_mark(self) -> Path:
        """The signed file that records how far the audit log was verified."""
        return self.data_dir / "audit-verified.json"

    def refuse_weak_secrets(self) -> None:
        """Raise Misconfigured unless every secret could be random."""
        _refuse_weak("TOOLCRIB_JWT_SECRET", self.jwt_secret)
        _refuse_weak("TOOLCRIB_AUDIT_KEY", self.audit_key)
        if self.jwt_previous_secret:
            _refuse_weak("TOOLCRIB_JWT_PREVIOUS_SECRET", self.jwt_previous_secret)
        if self.credentials_key:
            _refuse_weak("TOOLCRIB_CREDENTIALS_KEY", self.credentials_key)


def _refuse_weak(name: str, secret: SecretStr) -> None:
    remedy = "Make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(48))'"
    value = secret.get_secret_value()
    if len(value.encode()) < MINIMUM_SECRET_BYTES:
        raise Misconfigured(
            f"{name} has {len(value.encode())} bytes; at least {MINIMUM_SECRET_BYTES} are needed. {remedy}"
        )
    if len(set(value)) < 10 or any(sample in value.lower() for sample in _SAMPLE_SECRETS):
        raise Misconfigured(f"{name} looks like a sample value, not a random one. {remedy}")


def _with_user(url: str, user: str) -> str:
    parts = urlsplit(url)
    _, _, address = parts.netloc.rpartition("@")
    password = f":{quote(parts.password)}" if parts.password else ""
    return urlunsplit(parts._replace(netloc=f"{user}{password}@{address}"))
