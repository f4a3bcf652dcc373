"""Secrets that a query would carry to a stranger. Knows the shapes that issuers give to keys; it guesses at nothing."""

import re

_SHAPES = {
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "a model provider's key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a Stripe key": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "a signed token": r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a password in an address": r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:[^\s/@]{1,200}@",
}
_PATTERN = re.compile("|".join(f"({shape})" for shape in _SHAPES.values()))


def secret_in(text: str) -> str | None:
    """What kind of secret ``text`` holds, if it holds one."""
    found = _PATTERN.search(text)
    return None if found is None or found.lastindex is None else list(_SHAPES)[found.lastindex - 1]
