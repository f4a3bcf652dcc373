"""Allowed host names, and origins that may use cookies."""

import pytest
from starlette.datastructures import Headers

from toolcrib.api.auth.principal import may_use_cookies
from toolcrib.api.request_guard import AllowedHosts


@pytest.mark.parametrize(
    ("allowed", "host", "known"),
    [
        (["example.com"], "example.com", True),
        (["example.com"], "EXAMPLE.com:443", True),
        (["example.com"], "www.example.com", False),
        (["*.example.com"], "www.example.com:8080", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], "evilexample.com", False),
        (["[::1]"], "[::1]:3000", True),
        (["[::1]"], "[::2]:3000", False),
        (["[::1]"], "[::1", False),
        (["*"], "anything", True),
        ([], "localhost", False),
        (["localhost"], "", False),
    ],
)
def test_a_host_is_matched_by_name_with_any_port(allowed: list[str], host: str, known: bool) -> None:
    assert AllowedHosts(allowed).know(host) is known


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"host": "crib.example", "origin": "https://crib.example"}, True),
        ({"host": "Crib.Example:8443", "origin": "https://crib.example:8443"}, True),
        ({"host": "crib.example", "referer": "https://crib.example/a?b=https://evil.example"}, True),
        ({"host": "crib.example", "origin": "https://friend.example"}, True),
        ({"host": "crib.example", "origin": "http://friend.example"}, False),
        ({"host": "crib.example", "origin": "https://evil.example", "referer": "https://crib.example/"}, False),
        ({"host": "crib.example", "origin": "https://crib.example.evil.example"}, False),
        ({"host": "crib.example", "origin": "https://crib.example@evil.example"}, False),
        ({"host": "crib.example", "origin": "chrome-extension://crib.example"}, False),
        ({"host": "crib.example", "origin": "null"}, False),
        ({"host": "crib.example", "origin": "", "referer": "https://crib.example/"}, False),
        ({"host": "crib.example"}, False),
        ({"host": "", "origin": "https://"}, False),
        ({}, False),
    ],
)
def test_a_page_must_send_an_allowed_origin(headers: dict[str, str], allowed: bool) -> None:
    assert may_use_cookies(Headers(headers), ("https://friend.example",)) is allowed
