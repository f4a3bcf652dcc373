"""With either engine, ripgrep or PostgreSQL, the matches equal those of PostgreSQL's own regular expressions.

Trees and patterns are generated to be awkward: letters whose other case is far away, marks that only some engines
count as parts of words, line ends of every kind, bytes that are not text.
"""

from collections.abc import Iterator, Sequence

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.databases import DatabaseUrls
from tests.integration.conftest import WorkspaceFixture
from toolcrib.core.errors import BadArguments

# Letters, their other cases near and far, a mark that joins the letter before it, other scripts, non-letters.
_CHARACTERS = [
    *"aAbBsSkKiI19_ .-($\t",
    "é",
    "É",
    "ß",
    "\u017f",
    "\u212a",
    "\u0130",
    "\u0131",
    "e\u0301",
    "कि",
    "Σ",
    "ς",
    "…",
    "😀",
]
_BYTES = [*(character.encode() for character in _CHARACTERS), b"\r", b"\xff", b"\xc3", b"\xe2\x82", b"\x1c", b"\x0b"]

_line = st.lists(st.sampled_from(_BYTES), max_size=7).map(b"".join)
_ending = st.sampled_from([b"\n", b"\n", b"\r\n"])
_body = st.builds(
    lambda mark, lines, last: mark + b"".join(line + end for line, end in lines) + last,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(_line, _ending), max_size=8),
    _line,
)

_literal = st.sampled_from(
    [*"aAbBsSkKiI19_ -", "é", "É", "ß", "\u017f", "\u212a", "\u0130", "\u0131", "Σ", r"\.", r"\(", r"\t", r"\r"]
)
_class = st.sampled_from(
    [
        ".", r"\w", r"\W", r"\s", r"\S", r"\d", r"\D", "[ab]", "[^a]", "[a-k]", "[^a-k]", "[A-Bé]", "[é-Σ]", "[^é]",
        "[[:alpha:]]", "[[:upper:]_]", "[^[:space:]]", r"[\w-]", r"[^\d\s]", "[]a]", "[[:punct:]]", r"[\b]",
    ]
)  # fmt: skip
_constraint = st.sampled_from(["^", "$", r"\b", r"\y", r"\m", r"\M", r"\Y", r"\A", r"\Z", "(?=a)", "(?!a)", "(?<=a)"])
_sign = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?", "{,2}"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantified = st.builds(lambda atom, sign: atom + sign, inner, _sign)
    group = st.builds("({}){}".format, inner, _sign) | st.builds("(?:{}){}".format, inner, _sign)
    return (
        st.lists(quantified | group | _constraint, min_size=1, max_size=4).map("".join)
        | st.lists(inner, min_size=2, max_size=3).map("|".join)
        | st.builds(r"({})\1".format, inner)
    )


_options = st.sampled_from(["", "", "", "", "(?i)", "(?c)", "(?s)", "(?x)"])
_pattern = st.builds("{}{}".format, _options, st.recursive(_literal | _class, _grown, max_leaves=8))


def _often(times: int) -> settings:
    slow = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=times, deadline=None, database=None, suppress_health_check=slow)


@given(
    bodies=st.lists(_body, min_size=1, max_size=3),
    pattern=_pattern,
    case_sensitive=st.booleans(),
    limit=st.sampled_from([0, 1_000]),
)
@_often(250)
@example(bodies=["\u017f\nS\ns\n".encode()], pattern="\u017f", case_sensitive=False, limit=0)
@example(bodies=["क\u093f\n".encode()], pattern=r"\bक\b", case_sensitive=True, limit=0)
@example(bodies=[b"\n\na\r\n"], pattern="^$", case_sensitive=True, limit=0)
@example(bodies=[b"\n"], pattern="$^", case_sensitive=True, limit=0)
@example(bodies=[b"a\xffb\n"], pattern="a.b", case_sensitive=True, limit=0)
@example(bodies=["\ufeffa\n\ufeffa\n".encode()], pattern="^a", case_sensitive=True, limit=0)
@example(bodies=[b"foo\r\n"], pattern="foo.$", case_sensitive=True, limit=0)
async def test_matches_equal_those_of_postgresql(
    workspace: WorkspaceFixture,
    postgresql: psycopg.Connection,
    bodies: Sequence[bytes],
    pattern: str,
    case_sensitive: bool,
    limit: int,
) -> None:
    for old in workspace.project.iterdir():
        old.unlink()
    for number, body in enumerate(bodies):
        (workspace.project / f"{number}.txt").write_bytes(body)

    outcome = await workspace.call("grep", pattern=pattern, case_sensitive=case_sensitive, limit=limit)

    expected = matches_of_postgresql(postgresql, bodies, pattern, case_sensitive=case_sensitive)
    if expected is None:
        assert isinstance(outcome.error, BadArguments)
        return
    assert outcome.error is None
    assert [(match["path"], match["line_number"]) for match in outcome.result["matches"]] == expected


def matches_of_postgresql(
    postgresql: psycopg.Connection, bodies: Sequence[bytes], pattern: str, *, case_sensitive: bool
) -> list[tuple[str, int]] | None:
    """Return the lines that match ``~`` or ``~*``, or ``None`` if PostgreSQL rejects the pattern."""
    result = pattern.replace(r"\b", r"\y").replace(r"[\y]", r"[\b]")
    lines = [(f"/{file}.txt", *line) for file, body in enumerate(bodies) for line in numbered(body)]
    statement = f"""
        select n - 1 from unnest(%s::text[]) with ordinality as lines (line, n)
        where line {"~" if case_sensitive else "~*"} %s order by n
        """
    try:
        rows = postgresql.execute(statement.encode(), (["", *(text for _, _, text in lines)], result)).fetchall()
    except psycopg.errors.InvalidRegularExpression:
        return None
    return [lines[n - 1][:2] for (n,) in rows if n > 0]


def numbered(body: bytes) -> list[tuple[int, str]]:
    """Return a text's lines. The text after the last newline is a line unless it is empty."""
    *lines, last = body.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if last or body == b"\xef\xbb\xbf":
        lines.append(last)
    return [(number, line.removesuffix(b"\r").decode("utf-8", "replace")) for number, line in enumerate(lines, 1)]


@pytest.fixture(scope="module")
def postgresql(database_urls: DatabaseUrls) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_urls.app, autocommit=True) as connection:
        yield connection
