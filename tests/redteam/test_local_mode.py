"""Local mode: no secret in arguments or in files that others can read, and a port that gives no access by itself.

``test_second_user`` tests what another user of the machine really gets; it needs root.
"""

import json
import os
import re
import secrets
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.acceptance.local_machine import Laptop, laptop
from tests.integration.sandbox.sandbox_fixture import SANDBOX, Stand
from tests.integration.sandbox.test_background import mounts, until
from tests.wait_until import PATIENCE
from toolcrib.api.access_tokens import LoginLinks
from toolcrib.core.errors import Unauthenticated
from toolcrib.core.ids import UserId, new_id
from toolcrib.local.local_mode import _other_servers
from toolcrib.sandbox.background_process import BackgroundSandbox
from toolcrib.sandbox.command import SandboxCommand

SHOWN = "It logs you in once:\n\n  "
# Records its arguments as a list of JSON, and the page that it was given while that exists.
BROWSER = """#!/usr/bin/env python3
import json, sys, urllib.parse, urllib.request
page = open(urllib.parse.unquote(urllib.parse.urlsplit(sys.argv[1]).path)).read()
with open({noted!r} + ".new", "w") as note:
    json.dump({{"arguments": sys.argv, "page": page}}, note)
import os
os.rename({noted!r} + ".new", {noted!r})
"""


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


@pytest.fixture
async def background(tmp_path: Path) -> AsyncIterator[BackgroundSandbox]:
    await SANDBOX.probe()
    opened = BackgroundSandbox(SANDBOX, Stand(tmp_path).staging)
    yield opened
    await opened.close()


@pytest.mark.long
def test_browser_is_called_with_a_file_that_only_its_owner_can_read(own: Laptop) -> None:
    project, noted = own.project(), own.base / "projects" / "noted.json"
    program = own.base / "projects" / "browser"
    program.write_text(BROWSER.format(noted=str(noted)))
    program.chmod(0o755)

    with own.terminal("web", at=project, BROWSER=str(program)) as serving:
        serving.until(SHOWN)
        link = serving.until("\n")
        serving.until("Press Enter for a new link")
        called = _once_there(noted)
        page = Path(unquote(urlsplit(called["arguments"][1]).path))
        modes = [stat.S_IMODE(one.stat().st_mode) for one in (page, page.parent, page.parent.parent.parent)]
        serving.interrupt()
        serving.process.wait(PATIENCE)

    secret = urlsplit(link).fragment.removeprefix("login=")
    assert called["arguments"][1].startswith("file://")
    assert secret not in " ".join(called["arguments"])
    assert unescape(re.findall(r'href="([^"]*)"', called["page"])[0]) == link
    assert modes == [0o600, 0o700, 0o700]
    assert not page.exists()


def test_local_mode_data_is_readable_only_by_its_owner(own: Laptop) -> None:
    project = own.project()
    with own.terminal("web", "--no-open", at=project) as serving:
        serving.until(SHOWN)
        serving.until("\n")
        kept = [own.data, *own.data.iterdir(), *(own.data / "projects").glob("*"), *(own.data / "run").iterdir()]
        notes = [one for one in (own.data / "projects").glob("*/*") if one.is_file()]
        cluster = [one for one in (own.data / "postgres").iterdir() if one.is_file()]
        open_to_others = {
            str(one): oct(one.lstat().st_mode) for one in (*kept, *notes, *cluster) if one.lstat().st_mode & 0o077
        }
        serving.interrupt()
        serving.process.wait(PATIENCE)

    assert {"server.json", "server.log"} <= {one.name for one in notes}
    assert open_to_others == {}


def test_private_database_listens_on_no_port_and_trusts_no_other_user(own: Laptop) -> None:
    own.says("user", at=own.project())
    rules = [
        line.split()
        for line in (own.data / "postgres" / "pg_hba.conf").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    configuration = (own.data / "postgres" / "postgresql.conf").read_text()

    assert {rule[-1] for rule in rules} == {"scram-sha-256"}
    assert "listen_addresses = ''" in configuration
    assert stat.S_IMODE((own.data / "run").stat().st_mode) == 0o700


def test_port_alone_gives_no_access(own: Laptop) -> None:
    with own.terminal("web", "--no-open", at=own.project()) as serving:
        serving.until(SHOWN)
        link = urlsplit(serving.until("\n"))
        address = f"http://127.0.0.1:{link.port}"
        workspace = link.path.removeprefix("/w/")
        with httpx2.Client(base_url=address, trust_env=False, timeout=PATIENCE) as stranger:
            described = stranger.get("/api/v1/openapi.json").json()["paths"]
            answers = {
                (method, path): stranger.request(method, path.replace("{workspace_id}", workspace)).status_code
                for path, methods in described.items()
                for method in methods
                if not path.startswith(("/api/v1/auth/", "/health", "/livez", "/readyz"))
            }
            registered = stranger.post(
                "/api/v1/auth/register", json={"email": "mallory@example.com", "password": "a long enough phrase"}
            )
            rebound = stranger.get("/api/v1/openapi.json", headers={"Host": f"evil.example:{link.port}"})
        live = f"ws://127.0.0.1:{link.port}/api/v1/workspaces/{workspace}/ws"
        refused = [
            _refusal(live, Host=f"evil.example:{link.port}"),
            _refusal(live, Origin="http://evil.example"),
            _refusal(live, Origin=f"http://evil.example:{link.port}"),
            _refusal(live, Authorization="Bearer nonsense"),
            _refusal(live, Cookie="access_token=nonsense", Origin="http://evil.example"),
        ]
        serving.interrupt()
        serving.process.wait(PATIENCE)

    assert set(answers.values()) <= {401, 400, 422}, answers
    assert 401 in answers.values()
    assert registered.status_code == 403
    assert rebound.status_code == 400
    assert refused == [400, 403, 403, 401, 403]


@pytest.mark.long
def test_credentials_of_one_start_are_invalid_at_the_next(own: Laptop) -> None:
    """A process that takes the port that the server left receives the cookies of pages that are still open."""
    project = own.project()
    with _page(own, project) as (before, browser):
        given = browser.post("/api/v1/auth/link", json={"link": before.fragment.removeprefix("login=")}).json()
        worked = browser.get("/api/v1/auth/me", headers=_bearer(given["access_token"])).status_code
    with _page(own, project) as (now, browser):
        spent = {"refresh_token": given["refresh_token"]}
        stolen = [
            browser.get("/api/v1/auth/me", headers=_bearer(given["access_token"])).status_code,
            browser.post("/api/v1/auth/refresh", json=spent).status_code,
            browser.get("/api/v1/auth/me", headers={"Host": f"{before.hostname}:{now.port}"}).status_code,
        ]

    assert worked == 200
    # The host name of the pages is another one, too.
    assert stolen == [401, 401, 400]


def test_link_is_valid_for_one_directory_and_not_after_a_restart() -> None:
    secret, ada = secrets.token_urlsafe(48), UserId(new_id())
    here = LoginLinks(secret, node="here")
    link = here.issue(ada, 0)

    with pytest.raises(Unauthenticated):
        LoginLinks(secret, node="there").redeem(link)
    with pytest.raises(Unauthenticated):
        LoginLinks(secret, node="here", clock=lambda: time.time() + 2).redeem(link)
    assert here.redeem(link).user_id == ada
    with pytest.raises(Unauthenticated):
        here.redeem(link)


def test_stale_port_file_is_not_trusted(tmp_path: Path) -> None:
    path_state = {"secret": "x", "user_id": str(new_id()), "token_version": 0, "workspace_id": str(new_id())}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        (tmp_path / "server.json").write_text(json.dumps(path_state | {"address": f"http://127.0.0.1:{port}"}))
        believed = _other_servers(tmp_path)
    gone = _other_servers(tmp_path)

    assert believed is not None
    assert "secret" not in repr(believed)
    assert gone is None


async def test_keys_of_a_sandboxed_program_are_in_no_process_arguments(
    background: BackgroundSandbox, tmp_path: Path
) -> None:
    key = secrets.token_hex(16)
    process = await background.start(SandboxCommand("echo $WORD; read _", env={"WORD": key}), mounts(tmp_path))
    said = await until(process, key.encode())
    seen = [words for words in _all_arguments() if key in words]

    assert key in said.decode()
    assert seen == []


@contextmanager
def _page(own: Laptop, project: Path) -> Iterator[tuple[SplitResult, httpx2.Client]]:
    """A directory's page: its link, and a browser to open it."""
    with own.terminal("web", "--no-open", at=project) as serving:
        serving.until(SHOWN)
        link = urlsplit(serving.until("\n"))
        headers = {"Host": link.netloc, "Origin": f"http://{link.netloc}"}
        address = f"http://127.0.0.1:{link.port}"
        with httpx2.Client(base_url=address, headers=headers, trust_env=False, timeout=PATIENCE) as browser:
            yield link, browser
        serving.interrupt()
        serving.process.wait(PATIENCE)


def _all_arguments() -> Iterator[str]:
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            yield Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue


def _once_there(noted: Path) -> Any:
    tick, deadline = threading.Event(), time.monotonic() + PATIENCE
    while not noted.exists():
        assert time.monotonic() < deadline, "The browser was not called."
        tick.wait(0.02)
    return json.loads(noted.read_text())


def _refusal(address: str, **headers: str) -> int:
    try:
        with connect(address, additional_headers=headers, proxy=None):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
