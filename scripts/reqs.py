"""Lists which tests show which requirement. Reads the tests as text; runs none of them.

A test names the requirement ids that it shows, and which part of them if it is not the whole:

    @pytest.mark.req("WS-3", part="the fallback walk")

The mark may stand on a function, a class, a parameter set, or in a `pytestmark`. Ids are those of
docs/requirements.md. Ends with 1 if a test names an unknown id, or if no test shows an id that was asked for.
"""

import argparse
import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE_ROW = re.compile(r"^\|\s*([A-Z]{2}-\d+)\s*\|\s*(.+?)\s*\|\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Showing:
    """One test that says it shows one requirement."""

    requirement: str
    part: str | None
    test: str

    def __str__(self) -> str:
        return f"{self.test}  ({self.part})" if self.part else self.test


class BadMark(Exception):
    """A `req` mark that cannot be read without running the test."""


def main(argv: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    options = _options(argv)
    titles = read_titles(root / "docs" / "requirements.md")
    try:
        showings = sorted(set(scan(root / "tests")), key=lambda showing: (showing.test, showing.part or ""))
    except BadMark as error:
        print(error, file=sys.stderr)
        return 1
    if not options.quiet:
        _print_listing(titles, showings, only=options.need)
    shown = titles.keys() & {showing.requirement for showing in showings}
    print(f"{len(shown)} of {len(titles)} requirements are shown by a test.")
    faults = [*_unknown(titles, showings), *_unmet(titles, shown, options.need)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def read_titles(table: Path) -> dict[str, str]:
    """The requirement ids and their titles, in the order of the page."""
    return dict(TABLE_ROW.findall(table.read_text(encoding="utf-8")))


def scan(tests: Path) -> Iterator[Showing]:
    """Every requirement that a test under this directory names."""
    for path in sorted(tests.rglob("*.py")):
        name = path.relative_to(tests.parent).as_posix()
        yield from _in_body(ast.parse(path.read_bytes(), filename=name).body, name, inherited=[])


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="List which tests show which requirement.")
    parser.add_argument("need", nargs="*", metavar="ID", help="an id that some test must show")
    parser.add_argument("--quiet", action="store_true", help="print faults and the count only")
    return parser.parse_args(argv)


def _in_body(body: Sequence[ast.stmt], place: str, inherited: list[ast.Call]) -> Iterator[Showing]:
    marks = inherited + [mark for statement in body if _is_pytestmark(statement) for mark in _marks([statement])]
    for statement in body:
        match statement:
            case ast.ClassDef(name=name, decorator_list=decorators) if name.startswith("Test"):
                yield from _in_body(statement.body, f"{place}::{name}", marks + _marks(decorators))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
                for mark in marks + _marks(statement.decorator_list):
                    yield from _showings(mark, f"{place}::{name}")


def _is_pytestmark(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id="pytestmark")]) | ast.AnnAssign(target=ast.Name(id="pytestmark")):
            return True
    return False


def _marks(nodes: Iterable[ast.AST]) -> list[ast.Call]:
    """The calls `pytest.mark.req(…)` or `mark.req(…)` anywhere within these nodes."""
    calls = (node for top in nodes for node in ast.walk(top) if isinstance(node, ast.Call))
    return [call for call in calls if re.fullmatch(r"(pytest\.)?mark\.req", ast.unparse(call.func))]


def _showings(mark: ast.Call, test: str) -> Iterator[Showing]:
    ids = [_text(argument, test) for argument in mark.args]
    parts = {keyword.arg: _text(keyword.value, test) for keyword in mark.keywords}
    if not ids or parts.keys() - {"part"}:
        raise BadMark(f'{test}: write the mark as req("WS-3") or req("WS-3", part="…"), not {ast.unparse(mark)}')
    for requirement in ids:
        yield Showing(requirement, parts.get("part"), test)


def _text(node: ast.expr, test: str) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
    raise BadMark(f"{test}: a req mark holds plain strings only, not {ast.unparse(node)}")


def _print_listing(titles: dict[str, str], showings: Sequence[Showing], *, only: Sequence[str]) -> None:
    for requirement, title in titles.items():
        if only and requirement not in only:
            continue
        tests = [showing for showing in showings if showing.requirement == requirement]
        print(f"{requirement:<6} {title}" + ("" if tests else "  [no test]"))
        for showing in tests:
            print(f"         {showing}")


def _unknown(titles: Collection[str], showings: Sequence[Showing]) -> Iterator[str]:
    for showing in showings:
        if showing.requirement not in titles:
            yield f"{showing.test}: {showing.requirement} is not in docs/requirements.md"


def _unmet(titles: dict[str, str], shown: Collection[str], needed: Sequence[str]) -> Iterator[str]:
    for need in needed:
        if need not in titles:
            yield f"{need}: not in docs/requirements.md"
        elif need not in shown:
            yield f"{need}: no test shows it ({titles[need]})"


if __name__ == "__main__":
    sys.exit(main())
