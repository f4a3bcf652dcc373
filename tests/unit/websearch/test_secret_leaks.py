"""Secrets in a query are recognized by the formats of their issuers."""

import pytest

from toolcrib.websearch.text_sanitizer import find_secret


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY----- b3Blb", "a private key"),
        ("AKIA" + "A1B2" * 4, "an AWS key"),
        ("token ghp_" + "a1" * 18, "a GitHub token"),
        ("github_pat_" + "a1" * 20, "a GitHub token"),
        ("glpat-" + "a1" * 10, "a GitLab token"),
        ("xoxb-" + "1234567890-ab", "a Slack token"),
        ("key=AIza" + "a" * 35, "a Google key"),
        ("sk-ant-" + "a1" * 20, "a model provider's key"),
        ("sk_live_" + "a1" * 12, "a Stripe key"),
        ("eyJ" + "a" * 20 + "." + "b" * 20 + "." + "c" * 20, "a signed token"),
        ("connect to postgresql://ada:hunter2@db.example/x", "a password in an address"),
    ],
)
def test_a_secret_is_recognized_by_its_format(text: str, kind: str) -> None:
    assert find_secret(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "how do I rotate an AKIA key",
        "sk-learn pipeline example",
        "what does ghp_ mean in a github token",
        "commit 5867b40c0ffee0123456789abcdef0123456789a",
        "http://user@host:8080/path",
        "eyJ what is this prefix",
        "ssh://git@github.com:22/a/b",
        "019a3f2e-7b1c-7d20-8a4b-0123456789ab",
    ],
)
def test_ordinary_questions_are_not_taken_for_secrets(text: str) -> None:
    assert find_secret(text) is None
