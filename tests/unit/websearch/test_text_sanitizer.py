"""Sanitized text from strangers: it cannot draw, control the terminal, hide or mislead."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.websearch.text_sanitizer import to_plain_text, web_address


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("two\n\n lines\tand\u00a0more", "two lines and more"),
        ("<b>bold</b>, <a href='x'>link</a><br/>x", "bold , link x"),
        ("List<String> and a < b > c", "List<String> and a < b > c"),
        ("&lt;b&gt; &amp;amp; &#27;[31m", "<b> &amp; [31m"),
        ("\x1b[31;1mred\x1b[0m \x9b2Jcleared", "red cleared"),
        ("\x1b]0;title\x07after \x1b]8;;https://evil.example\x1b\\link", "after link"),
        ("a\x00b\x07c\x7fd", "abcd"),
        ("\u202egnp.exe\u202c zero\u200bwidth tag\U000e0041", "gnp.exe zerowidth tag"),
        ("family \U0001f469\u200d\U0001f467", "family \U0001f469\u200d\U0001f467"),
        ("lone \ud800 half", "lone half"),
        (None, ""),
        (["list"], ""),
    ],
)
def test_a_text_becomes_one_plain_line(text: object, result: str) -> None:
    assert to_plain_text(text, most=100) == result


def test_a_long_text_is_truncated_with_a_mark() -> None:
    assert to_plain_text("x" * 101, most=100) == "x" * 99 + "…"
    assert len(to_plain_text("<i>" * 10_000_000, most=100)) < 5


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec=None), max_size=300), st.integers(2, 50))
def test_any_text_becomes_one_short_visible_line(text: str, most: int) -> None:
    result = to_plain_text(text, most=most)

    assert len(result) <= most
    assert result == " ".join(result.split())
    kinds = {unicodedata.category(character) for character in result if character not in "\u200c\u200d"}
    assert kinds.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
    result.encode()


@settings(deadline=None)
@given(st.text(max_size=100))
def test_any_url_becomes_an_http_url_or_none(text: str) -> None:
    for candidate in (text, f"https://{text}", f"https://a.example/{text}"):
        address = web_address(candidate)
        assert address is None or (address.startswith(("http://", "https://", "HTTP")) and address.isprintable())


@pytest.mark.parametrize("address", ["https://a.example/x?y#z", " http://[::1]:8080/ ", "HTTPS://A.example"])
def test_valid_urls_are_kept_unchanged(address: str) -> None:
    assert web_address(address) == address.strip()
