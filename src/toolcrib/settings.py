"""Settings of the server, from the environment (``TOOLCRIB_…``) or a file named by ``TOOLCRIB_ENV_FILE``."""

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr, StringConstraints, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from toolcrib.core.errors import Misconfigured
from toolcrib.runtime.disk_identity import DiskIdentity

MINIMUM_SECRET_BYTES = 32
# Secrets that appear in documentation and examples everywhere, our own included.
_SAMPLE_SECRETS = ("change", "example", "secret-key", "your-secret", "insecure", "0123456789", "password")


class Settings(BaseSettings):
    """Everything that an operator may set. No default weakens security."""

    # An empty variable is one that is not set: compose files and charts pass on what nobody has given.
    model_config = SettingsConfigDict(
        env_prefix="TOOLCRIB_",
        env_file=os.environ.get("TOOLCRIB_ENV_FILE"),
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
    )

    database_url: str = Field(
        description="PostgreSQL URL of the server's database, with the role toolcrib_app. Another installation in the "
        "same cluster has a role of its own, such as crib2_app."
    )
    system_database_url: str | None = Field(
        default=None,
        description="The same database with the role toolcrib_system (crib2_system). By default, database_url with "
        "that role.",
    )
    owner_database_url: str | None = Field(
        default=None, description="The same database with its owner's role. Only `toolcrib db upgrade` uses it."
    )
    pool_size: int = Field(
        default=16, ge=2, le=200, description="Maximum number of database connections of one server process."
    )
    database_answer_seconds: float = Field(
        default=60,
        ge=1,
        description="A connection on which the database has not answered a statement for this long is closed, and what "
        "needed it is tried again.",
    )

    jwt_secret: SecretStr = Field(description="Signs access tokens. At least 32 random bytes.")
    jwt_previous_secret: SecretStr | None = Field(
        default=None,
        description="The previous secret, for rotation. Tokens signed with it are accepted until they expire.",
    )
    access_token_minutes: int = Field(default=15, ge=1, le=24 * 60, description="Lifetime of an access token.")
    refresh_token_days: int = Field(
        default=30, ge=1, le=365, description="A login expires after this many days without use."
    )
    audit_seal_key: SecretStr = Field(
        description="Seals the audit log. At least 32 random bytes, stored outside the database."
    )
    audit_seal_interval_seconds: float = Field(default=10, gt=0, description="Seconds between seals of the audit log.")
    audit_checkpoint_file: Path | None = Field(
        default=None,
        description="Append signed checkpoints of the audit log to this file. Use another disk if possible.",
    )
    audit_checkpoint_url: str | None = Field(
        default=None, description="POST signed checkpoints of the audit log to this URL, as JSON."
    )
    audit_checkpoint_seconds: float = Field(default=3600, gt=0, description="Seconds between exports of checkpoints.")

    credentials_encryption_key: SecretStr | None = Field(
        default=None,
        description="Encrypts users' keys for model providers. At least 32 random bytes. By default, jwt_secret.",
    )
    credentials_previous_encryption_key: SecretStr | None = Field(
        default=None, description="The previous key, for rotation. Still decrypts what was encrypted with it."
    )
    allowed_private_model_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Model servers with private addresses that users may use: host:port, comma-separated; * for all.",
    )
    allowed_private_mcp_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="MCP servers with private addresses that users may use: host:port, comma-separated; * for all.",
    )
    allowed_private_web_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Hosts of the private network whose pages web_fetch may read: host:port, comma-separated.",
    )
    allowed_private_command_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Hosts of the private network that commands may contact once a person granted them, such as a "
        "company's package registry: host:port, comma-separated.",
    )
    mcp_program_dirs: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(),
        description="Directories with MCP server programs, comma-separated. The sandbox mounts them at the same paths.",
    )
    model_requests_at_once: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="How many model requests run at once with one credential, in all processes together. Users may set "
        "lower limits for their own; those of the environment in local mode have this one.",
    )
    model_requests_per_minute: int | None = Field(
        default=None, ge=1, le=10_000, description="How many model requests start within a minute with one credential."
    )
    model_proxy: str | None = Field(default=None, description="URL of a proxy for requests to model providers.")

    version_retention_days: float | None = Field(
        default=None,
        gt=0,
        description="Delete versions older than this, except the current ones. By default, all versions are kept.",
    )
    trash_max_bytes: int = Field(
        default=1_000_000_000,
        ge=0,
        description="Maximum size of a workspace's trash for replaced and deleted files that are not in the history.",
    )
    trash_retention_days: float = Field(
        default=7, gt=0, description="Days that files stay in the trash. If it is full, the oldest are deleted first."
    )
    heartbeat_lease_seconds: float = Field(
        default=15,
        ge=1,
        description="A process without a heartbeat for this long counts as dead. Other processes take over its runs.",
    )
    take_over_homes: bool = Field(
        default=True,
        description="Serve the workspaces of nodes that are silent, and give workspaces away while this node drains. "
        "What only a node's disk has, such as ignored files, does not move. Local mode never does this.",
    )
    drain_seconds: float = Field(
        default=20,
        ge=0,
        description="After SIGTERM, model turns and calls that are at work may finish for this long. Then they are "
        "released for the next process.",
    )
    max_workspace_runs: int = Field(
        default=50, ge=1, le=10_000, description="How many runs of a workspace work at a time. Others queue."
    )
    max_child_run_depth: int = Field(
        default=3, ge=0, le=100, description="How deep runs may start child runs: 1 if these may not start others."
    )
    max_child_runs_at_once: int = Field(
        default=20, ge=1, le=10_000, description="How many child runs of a session, at any depth, work at a time."
    )
    max_child_runs: int = Field(
        default=200, ge=1, le=100_000, description="How many child runs a session may start in all, at any depth."
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Give up a run or an approved call after this many attempts during which the server process died.",
    )
    max_provider_waits: int = Field(
        default=5,
        ge=0,
        le=100,
        description="How often in a row a run is put aside when its provider limits requests, before it fails.",
    )
    max_provider_wait_seconds: float = Field(
        default=3600, ge=0, le=86_400, description="For how long a run is put aside in total, before it fails."
    )
    approval_timeout_seconds: float = Field(
        default=7 * 86_400, ge=30, description="Pending approvals and questions expire after this time."
    )
    retention_interval_seconds: float = Field(
        default=3600, gt=0, description="Seconds between deletions of unused blobs, expired trash and old versions."
    )

    data_dir: Path = Field(default=Path("toolcrib-data"), description="Directory for the files of the workspaces.")
    redis_url: str | None = Field(
        default=None,
        description="Redis URL for live events and rate limits between nodes. A single node does not need it.",
    )
    max_requests_per_minute: int | None = Field(
        default=None,
        ge=1,
        description="Most HTTP requests within a minute of one user, API key, or address without either. "
        "By default there is no such limit.",
    )
    node_name: str = Field(
        default_factory=socket.gethostname,
        description="Name of this node, whose disk has the files of its workspaces. By default the name that the data "
        "directory was first used with, else that of the host.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=3000, ge=1, le=65535, description="Port to listen on.")
    internal_host: str = Field(
        default="127.0.0.1", description="Address of the internal listener, which only other nodes use."
    )
    internal_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port of the internal listener. With it, nodes forward calls to the node that has the files. "
        "By default there is none.",
    )
    internal_url: str | None = Field(
        default=None,
        description="URL at which other nodes reach the internal listener. By default, internal_host and "
        "internal_port.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("localhost", "127.0.0.1", "[::1]"),
        description="Accepted Host headers, comma-separated.",
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Additional origins that may use cookies, comma-separated."
    )
    trusted_proxies: str | None = Field(
        default=None,
        description="Addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted, comma-separated.",
    )
    secure_cookies: bool = Field(default=True, description="Send cookies over HTTPS only.")
    max_request_bytes: int = Field(default=20_000_000, gt=0, description="Maximum size of a request body.")
    git_author_name: str | None = Field(
        default=None,
        description="Author of the commits that agents make, if not `agent`. Local mode uses your git identity.",
    )
    git_author_email: str | None = Field(default=None, description="Address of that author.")
    git_config_files: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(),
        description="Git configuration files whose harmless settings and global ignore rules commands get, "
        "comma-separated, those that take precedence last. Local mode uses yours.",
    )
    tool_dirs: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(),
        description="Directories with programs for commands, comma-separated. The sandbox mounts them read-only at the "
        "same paths. Local mode uses those in your home.",
    )
    tools_module: str | None = Field(
        default=None,
        description="Python module whose tools the server loads, besides those of installed packages with entry points "
        "in the group `toolcrib.tools`.",
    )
    command_path: str | None = Field(default=None, description="PATH of commands. Local mode uses yours.")
    command_cache_bytes: int = Field(
        default=0,
        ge=0,
        description="Maximum size of the cache (`~/.cache`) that each agent's commands keep in a workspace. 0: none. "
        "Local mode: 5 GB.",
    )
    max_file_bytes: int = Field(
        default=10_000_000, gt=0, description="Maximum size of a file that tools read or write."
    )
    searxng_url: str | None = Field(
        default=None,
        description="URL of a SearXNG server, which web_search tries first. It must have JSON output enabled.",
    )
    brave_api_key: SecretStr | None = Field(
        default=None, description="API key for Brave Search, which web_search tries next."
    )
    brave_url: str = Field(
        default="https://api.search.brave.com/res/v1/web/search", description="URL of the Brave Search API."
    )
    web_search_timeout_seconds: float = Field(default=10, gt=0, le=60, description="Timeout for one search engine.")
    access_log: bool = Field(
        default=True, description="Log every request, as JSON: method, path without its query, status, time, address."
    )
    metrics_token: SecretStr | None = Field(
        default=None,
        description="Turns `GET /metrics` on, for Prometheus, which sends this as a bearer token. At least 32 random "
        "bytes. By default there are no metrics.",
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="URL of an OpenTelemetry collector to which traces are sent, over OTLP/HTTP, such as "
        "http://127.0.0.1:4318. Variables such as OTEL_TRACES_SAMPLER apply. By default there are no traces.",
    )
    stalls_file: Path | None = Field(
        default=None, description="Write stalls of the event loop to this file, as JSON lines. For tests and diagnosis."
    )
    max_api_keys: int = Field(default=200, ge=1, description="Maximum number of API keys per user.")
    max_workspaces: int = Field(default=1_000, ge=1, description="Maximum number of workspaces that a user may create.")
    max_workspace_files: int = Field(
        default=2_000_000, ge=1, description="Maximum number of files and folders that calls may create in a workspace."
    )
    max_workspace_bytes: int = Field(
        default=100_000_000_000,
        ge=1,
        description="Maximum bytes of file contents that calls may add to a workspace, including earlier versions.",
    )
    max_sessions: int = Field(default=100_000, ge=1, description="Maximum number of sessions per workspace.")
    max_schedules: int = Field(default=100, ge=1, description="Maximum number of schedules per workspace.")
    max_open_approvals: int = Field(
        default=1_000, ge=1, description="Maximum number of calls per workspace that wait for a person."
    )
    open_registration: bool = Field(
        default=False,
        description="Allow anyone who can reach the server to register. Otherwise, use `toolcrib user create`.",
    )
    admin_email: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)] | None = Field(
        default=None,
        max_length=254,
        pattern=r"^[!-?A-~]+@[!-?A-~]+\.[!-?A-~]+$",
        description="Email address of the first account, an administrator. Created with the next setting when a "
        "server starts and there is no account. Otherwise, the server prints a link that creates it.",
    )
    admin_password: SecretStr | None = Field(
        default=None,
        min_length=12,
        max_length=1024,
        description="Password of that account, of at least 12 characters. Ignored once there is an account: change "
        "it after the first login, and remove this.",
    )
    invitations: bool = Field(
        default=True,
        description="Allow workspace owners to invite people without an account, by links that work once.",
    )

    @field_validator(
        "allowed_hosts",
        "allowed_origins",
        "allowed_private_model_hosts",
        "allowed_private_mcp_hosts",
        "allowed_private_web_hosts",
        "allowed_private_command_hosts",
        "mcp_program_dirs",
        "git_config_files",
        "tool_dirs",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("allowed_private_command_hosts")
    @classmethod
    def _reject_wildcards(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        # Whoever serves a name chooses its address: only names that the operator knows may lead into the network.
        if any("*" in host for host in value):
            raise ValueError("List each host and port. A wildcard would open the whole private network to commands.")
        return tuple(host.lower() for host in value)

    @property
    def system_url(self) -> str:
        """The DSN of the system role."""
        return self.system_database_url or as_system_role(self.database_url)

    @property
    def origin(self) -> str:
        """The address of the web UI on this machine."""
        host = "localhost" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 - compared, not bound
        return f"http://{host}:{self.port}"

    @property
    def first_administrator(self) -> tuple[str, SecretStr] | None:
        """The email address and password of the first account; None without these settings.

        Raises:
            Misconfigured: Only one of them is set.
        """
        if (self.admin_email is None) != (self.admin_password is None):
            raise Misconfigured("Set both TOOLCRIB_ADMIN_EMAIL and TOOLCRIB_ADMIN_PASSWORD, or neither.")
        return (
            None if self.admin_email is None or self.admin_password is None else (self.admin_email, self.admin_password)
        )

    @property
    def internal_address(self) -> str | None:
        """The URL at which other nodes reach this one; None without an internal listener.

        Raises:
            Misconfigured: The listener has no address that another node could use.
        """
        if self.internal_port is None:
            return None
        if self.internal_url is None and self.internal_host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            raise Misconfigured(
                f"TOOLCRIB_INTERNAL_HOST is {self.internal_host}, which other nodes cannot connect to. Set "
                "TOOLCRIB_INTERNAL_URL to the URL of this node's internal listener, such as http://10.0.0.2:3001."
            )
        host = f"[{self.internal_host}]" if ":" in self.internal_host else self.internal_host
        return (self.internal_url or f"http://{host}:{self.internal_port}").rstrip("/")

    @property
    def audit_anchor(self) -> Path:
        """The file with the newest seal of this node, outside the database."""
        return self.data_dir / "audit-anchor.json"

    @property
    def audit_mark(self) -> Path:
        """The signed file that records how far the audit log was verified."""
        return self.data_dir / "audit-verified.json"

    def reject_weak_secrets(self) -> None:
        """Raise Misconfigured unless every secret could be random."""
        _reject_weak("TOOLCRIB_JWT_SECRET", self.jwt_secret)
        _reject_weak("TOOLCRIB_AUDIT_SEAL_KEY", self.audit_seal_key)
        if self.jwt_previous_secret:
            _reject_weak("TOOLCRIB_JWT_PREVIOUS_SECRET", self.jwt_previous_secret)
        if self.metrics_token is not None:
            _reject_weak("TOOLCRIB_METRICS_TOKEN", self.metrics_token)
        if self.credentials_encryption_key:
            _reject_weak("TOOLCRIB_CREDENTIALS_ENCRYPTION_KEY", self.credentials_encryption_key)


def load_settings(**given: Any) -> Settings:
    """Load the settings that are not given from the environment.

    Without a node name, it is the one that the data directory has: the name of a host changes, its disk does not.

    Raises:
        Misconfigured: Settings are missing or invalid; the message names their variables.
    """
    try:
        settings = Settings(**given)
    except ValidationError as error:
        wrong = [
            f"TOOLCRIB_{'_'.join(map(str, detail['loc'])).upper()}: "
            + ("not set" if detail["type"] == "missing" else detail["msg"])
            for detail in error.errors(include_url=False, include_input=False)
        ]
        raise Misconfigured("Settings are missing or invalid:\n  " + "\n  ".join(wrong)) from None
    if "node_name" not in settings.model_fields_set:
        # A command that needs no disk also works where it cannot be read. The server reads it again.
        with suppress(OSError, Misconfigured):
            if (disk := DiskIdentity.load(settings.data_dir)) is not None:
                return settings.model_copy(update={"node_name": disk.node})
    return settings


def _reject_weak(name: str, secret: SecretStr) -> None:
    remedy = "Create one with: python3 -c 'import secrets; print(secrets.token_urlsafe(48))'"
    value = secret.get_secret_value()
    if len(value.encode()) < MINIMUM_SECRET_BYTES:
        raise Misconfigured(
            f"{name} has {len(value.encode())} bytes; at least {MINIMUM_SECRET_BYTES} are needed. {remedy}"
        )
    if len(set(value)) < 10 or any(sample in value.lower() for sample in _SAMPLE_SECRETS):
        raise Misconfigured(f"{name} looks like a sample value, not a random one. {remedy}")


def as_system_role(url: str) -> str:
    """Return the DSN with the system role, for a server with one password for both roles."""
    parts = urlsplit(url)
    user = parts.username or ""
    role = f"{user.removesuffix('_app')}_system" if user.endswith("_app") else "toolcrib_system"
    _, _, address = parts.netloc.rpartition("@")
    # It is quoted as in the given URL.
    password = f":{parts.password}" if parts.password else ""
    return urlunsplit(parts._replace(netloc=f"{role}{password}@{address}"))
