"""A workspace whose `web_search` uses the given servers."""

from typing import Any

from pydantic import SecretStr

from tests.integration.conftest import WorkspaceFixture
from tests.integration.websearch.engines import KEY
from tests.integration.websearch.loopback import Loopback

# Nothing listens there.
NOWHERE = "http://127.0.0.1:1"


def searching(
    workspace: WorkspaceFixture, *, searxng: str | None = None, brave: Loopback | str | None = None, **more: Any
) -> WorkspaceFixture:
    """The same workspace behind a gate with these engines."""
    given: dict[str, Any] = {"searxng_url": searxng, **more}
    if brave is not None:
        origin = brave if isinstance(brave, str) else brave.origin
        given = {"brave_api_key": SecretStr(KEY), "brave_url": f"{origin}/res/v1/web/search", **given}
    return workspace.with_engine(workspace.settings.model_copy(update=given))
