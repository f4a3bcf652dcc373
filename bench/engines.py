"""What a measurement in this process needs: settings for a fresh database, and a person in a workspace."""

import secrets
from pathlib import Path

from pydantic import SecretStr

from bench.servers import url_of
from toolcrib.core.callers import Caller
from toolcrib.core.ids import new_id
from toolcrib.settings import Settings
from toolcrib.storage import migrate
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.tool_runtime import Stores

NODE = "bench"


def bench_settings(database: str, data_dir: Path) -> Settings:
    return Settings(
        database_url=url_of(database, migrate.APP_ROLE),
        system_database_url=url_of(database, migrate.SYSTEM_ROLE),
        jwt_secret=SecretStr(secrets.token_urlsafe(48)),
        audit_seal_key=SecretStr(secrets.token_urlsafe(48)),
        data_dir=data_dir,
        node_name=NODE,
    )


async def new_caller(stores: Stores, tree: Path | None = None) -> Caller:
    """Create a person who owns a new workspace, if given on an existing tree."""
    person = await stores.accounts.create_user(email=f"{new_id()}@example.org", full_name=None, password_hash="x")
    workspace = await stores.workspaces.create(
        ActingUser(person.user_id), name="bench", node=NODE, root_path=None if tree is None else str(tree)
    )
    return Caller(workspace.id, person.user_id)
