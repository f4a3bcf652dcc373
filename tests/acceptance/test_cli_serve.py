"""``toolcrib serve``, as a process manager runs it."""

import secrets
from pathlib import Path

import pytest

from tests.acceptance.serving import Serving, free_port, running
from tests.conftest import DatabaseUrls


@pytest.mark.req("SC-7", part="SIGTERM drains and exits 0")
def test_sigterm_closes_the_services_and_exits_with_0(tmp_path: Path, database_urls: DatabaseUrls) -> None:
    server = Serving(f"http://127.0.0.1:{free_port()}", secrets.token_urlsafe(48), tmp_path, database_urls)

    with running(server) as process:
        pass

    assert process.returncode == 0, server.log.read_text()
    assert "Traceback" not in server.log.read_text()
