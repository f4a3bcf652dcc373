"""A server without the packages of an extra: it says what to install."""

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import DatabaseUrls
from tests.faults.server import Server
from tests.wait_until import PATIENCE


@pytest.fixture
def server(tmp_path: Path, database_urls: DatabaseUrls) -> Iterator[Server]:
    with Server(tmp_path, database_urls) as server:
        yield server


def program_without(package: str) -> list[str]:
    """The command in an environment that lacks a package."""
    code = f"import sys; sys.modules[{package!r}] = None; from toolcrib.cli.main import main; main()"
    return [sys.executable, "-c", code]


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize(
    ("package", "setting", "value", "extra"),
    [
        ("redis", "TOOLCRIB_REDIS_URL", "redis://127.0.0.1:1", "redis"),
        ("opentelemetry.sdk.trace", "TOOLCRIB_OTLP_ENDPOINT", "http://127.0.0.1:9", "otel"),
        ("prometheus_client", "TOOLCRIB_METRICS_TOKEN", secrets.token_urlsafe(48), "server"),
    ],
    ids=["redis", "otel", "server"],
)
def test_a_setting_whose_package_is_missing_is_rejected_with_the_remedy(
    server: Server, package: str, setting: str, value: str, extra: str
) -> None:
    server.environment[setting] = value

    ended = subprocess.run(
        [*program_without(package), "serve"],
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert ended.returncode == 2
    assert f"{setting} is set" in ended.stderr
    assert f"pip install 'toolcrib[{extra}]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_without_uvloop_works_and_names_the_remedy(server: Server) -> None:
    server.program = program_without("uvloop")

    server.start()

    assert "pip install 'toolcrib[server]'" in server.logged()
