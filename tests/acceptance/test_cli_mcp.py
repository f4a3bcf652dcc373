"""``toolcrib mcp update`` on a directory: secrets and hosts are added, replaced and removed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.local_machine import Laptop, laptop


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


@pytest.mark.long
def test_secrets_and_hosts_of_a_server_are_removed(own: Laptop) -> None:
    project = own.project()

    def now() -> tuple[Any, Any]:
        shown = json.loads(own.says("mcp", "show", "tools", "--json", at=project))
        return shown["secret_names"], shown["hosts"]

    with own.terminal("chat", "--plain", at=project) as chat:
        # The chat serves the directory to the commands below.
        chat.until("> ")
        given = ("--secret", "A_TOKEN", "--secret", "B_KEY", "--host", "api.example.com")
        own.says("mcp", "add", "tools", *given, "--", "/bin/false", at=project, A_TOKEN="hush-0001", B_KEY="hush-0002")
        at_first = now()
        change = ("--remove-secret", "A_TOKEN", "--secret", "C_KEY", "--no-hosts")
        updated = own.says("mcp", "update", "tools", *change, at=project, C_KEY="hush-0003")
        then = now()
        missing = own.says("mcp", "update", "tools", "--remove-secret", "A_TOKEN", at=project, status=2)
        both = own.says("mcp", "update", "tools", "--no-hosts", "--host", "x.org", at=project, status=2)
        chat.end()

    assert at_first == (["A_TOKEN", "B_KEY"], ["api.example.com"])
    assert then == (["B_KEY", "C_KEY"], [])
    assert "secrets: B_KEY, C_KEY" in updated
    assert "tools has no secret 'A_TOKEN'. Secrets: B_KEY, C_KEY." in missing
    assert "--host and --no-hosts exclude each other" in both
