"""Settings that an operator leaves empty are settings that are not given."""

import pytest

from toolcrib.core.errors import Misconfigured
from toolcrib.settings import Settings, as_system_role, load_settings

GIVEN = {
    "TOOLCRIB_DATABASE_URL": "postgresql://toolcrib_app@db/toolcrib",
    "TOOLCRIB_JWT_SECRET": "not-a-secret",
    "TOOLCRIB_AUDIT_SEAL_KEY": "not-a-secret",
}


@pytest.fixture(autouse=True)
def _given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)


def test_an_empty_metrics_token_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends no token would have the empty one."""
    monkeypatch.setenv("TOOLCRIB_METRICS_TOKEN", "")

    assert load_settings(node_name="node").metrics_token is None


def test_an_empty_secret_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_JWT_SECRET", "")

    with pytest.raises(Misconfigured, match="TOOLCRIB_JWT_SECRET: not set"):
        load_settings(node_name="node")


def test_an_empty_list_has_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_ALLOWED_HOSTS", "")

    assert load_settings(node_name="node").allowed_hosts == Settings.model_fields["allowed_hosts"].default


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("postgresql://toolcrib_app@db/crib", "postgresql://toolcrib_system@db/crib"),
        ("postgresql://crib2_app:a%40b%20c@db/crib2", "postgresql://crib2_system:a%40b%20c@db/crib2"),
        ("postgresql://someone@db/crib", "postgresql://toolcrib_system@db/crib"),
    ],
)
def test_the_system_role_belongs_to_the_role_of_the_server(given: str, expected: str) -> None:
    assert as_system_role(given) == expected
