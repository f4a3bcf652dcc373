"""Every promise of the security page names tests that attack it, and these tests exist."""

import ast
import re

import pytest

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TABLE = PAGE[PAGE.index("## Promises and the attacks on them") :]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
ROW = re.compile(r"^\| (?!Promise|---)(.+?) \| (.+) \|$", re.MULTILINE)


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_every_named_attack_exists(file: str, name: str) -> None:
    body = ast.parse((ROOT / file).read_bytes()).body
    tests = {one.name for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert not name or name in tests


def test_every_promise_names_an_attack() -> None:
    rows = ROW.findall(TABLE)
    assert len(rows) > 40
    assert [promise for promise, attacks in rows if not NAMED.search(attacks)] == []


def test_every_redteam_file_is_named() -> None:
    named = {file for file, _ in NAMED.findall(TABLE)}
    kept = {file.relative_to(ROOT).as_posix() for file in (ROOT / "tests" / "redteam").glob("test_*.py")}
    assert kept - named == set()
