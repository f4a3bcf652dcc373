"""A model, a database and a home for sessions in local mode, and a table of the results."""

from collections.abc import Iterator

import pytest

from tests.acceptance.local_machine import Model, model_beside
from tests.databases import DatabaseUrls
from tests.fakes.model_server import KEY

ROW = "session"
TITLES = ("session", "trust", "calls", "asked", "questions", "seconds", "undo s", "undo diff", "redo diff")


@pytest.fixture(scope="session")
def running_model() -> Iterator[Model]:
    with model_beside() as fake:
        yield fake


@pytest.fixture
def model(
    running_model: Model,
    database_urls: DatabaseUrls,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Model:
    """The model that local mode finds in its environment."""
    monkeypatch.setenv("TOOLCRIB_DATABASE_URL", database_urls.app)
    monkeypatch.setenv("TOOLCRIB_SYSTEM_DATABASE_URL", database_urls.system)
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path_factory.mktemp("toolcrib")))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{running_model.url}/v1")
    return running_model


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one row per session."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    rows = [value for report in reports for name, value in report.user_properties if name == ROW]
    if not rows:
        return
    terminalreporter.section("sessions")
    for row in (TITLES, *sorted(rows)):
        name, trust, *figures = map(str, row)
        terminalreporter.line(f"{name:<34} {trust:<8}" + "".join(f"{figure:>10}" for figure in figures))
