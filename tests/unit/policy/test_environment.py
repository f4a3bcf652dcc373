"""The environment variables that a command inherits."""

import pytest

from toolcrib.policy.environment import clean_environment


def test_ac7_the_path_is_passed_and_an_api_key_is_not() -> None:
    assert clean_environment({"MY_API_KEY": "secret", "PATH": "/usr/bin"}) == {"PATH": "/usr/bin"}


def test_only_listed_variables_are_passed() -> None:
    env = {
        "HOME": "/h",
        "LC_ALL": "C",
        "LANG": "C",
        "TZ": "UTC",
        "EDITOR": "vi",
        "LD_PRELOAD": "x",
        "BASH_ENV": "x",
    }
    assert clean_environment(env).keys() == {"HOME", "LC_ALL", "LANG", "TZ"}


def test_the_operator_may_add_names_and_globs() -> None:
    env = {"JAVA_HOME": "/j", "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "a@b", "OTHER": "x"}
    assert clean_environment(env, allow=("JAVA_HOME", "GIT_AUTHOR_*")).keys() == env.keys() - {"OTHER"}


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "openai_api_key",
        "OPENAIKEY",
        "AWS_ACCESS_KEY_ID",
        "GITHUB_TOKEN",
        "NPM_AUTH",
        "DB_PASSWORD",
        "DB_PASS",
        "PGPASSWORD",
        "CLIENT_SECRET",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_PRIVATE",
        "GH_PAT",
        "SENTRY_DSN",
        "LC_TOKEN",
    ],
)
def test_a_secret_by_name_is_not_passed_even_if_the_operator_allows_it(name: str) -> None:
    assert clean_environment({name: "x"}, allow=("*",)) == {}


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://app:hunter2@db/main",
        "-----BEGIN RSA PRIVATE KEY-----\nMII",
        "sk-" + "0123456789abcdef",
        "ghp_" + "0123456789abcdef",
        "github_pat_" + "0123456789abcdef",
        "xoxb-1234567890",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
def test_a_secret_by_value_is_not_passed_whatever_its_name(value: str) -> None:
    assert clean_environment({"HOME": value, "ADDRESS": value}, allow=("ADDRESS",)) == {}


def test_a_url_without_a_password_is_passed() -> None:
    env = {"HTTP_PROXY": "http://proxy.local:3128/a@b"}
    assert clean_environment(env, allow=("*_PROXY",)) == env
