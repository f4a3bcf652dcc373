"""List which tests cover which requirement, and which part of it. Parses the tests without running them.

docs/requirements.md has every requirement with its parts, as a list of boxes. A test names a part, or a requirement
that is not split into parts:

    @pytest.mark.req("WS-3", part="the fallback walk")
    @pytest.mark.req("TL-9")

A requirement is covered when all its parts are. A mark with an unknown part, or without a part where the requirement
has parts, is listed and does not count. The mark can be on a function, a class, a parameter set, or in a `pytestmark`.
Exits with 1 if a test names an unknown id, if a box on the page does not match the tests (`--write` corrects it), or if
a requested id is not covered.
"""

import argparse
import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs") / "requirements.md"
HEADING = re.compile(r"^### ([A-Z]{2}-\d+) (.+)$")
BOX = re.compile(r"^- \[([ x])\] (.+)$")
# The only part of a requirement that is not split.
WHOLE = "the whole"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement with its parts, and whether the page marks them as covered."""

    title: str
    parts: dict[str, bool]


@dataclass(frozen=True, slots=True)
class Showing:
    """A test that covers a requirement."""

    requirement: str
    part: str | None
    test: str

    @property
    def shows(self) -> str:
        return self.part or WHOLE


class BadMark(Exception):
    """A `req` mark that cannot be parsed without running the test."""


def main(argv: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    options = _options(argv)
    try:
        showings = sorted(set(scan(root / "tests")), key=lambda showing: (showing.test, showing.part or ""))
    except BadMark as error:
        print(error, file=sys.stderr)
        return 1
    if options.write:
        _write(root / PAGE, showings)
    page = read_requirements(root / PAGE)
    shown = {id_ for id_, one in page.items() if all(_is_shown(id_, part, showings) for part in one.parts)}
    if not options.quiet:
        _print_listing(page, showings, shown, only=options.need)
    parts = [(id_, part) for id_, one in page.items() for part in one.parts]
    count = sum(_is_shown(id_, part, showings) for id_, part in parts)
    print(f"{len(shown)} of {len(page)} requirements are shown by tests, and {count} of their {len(parts)} parts.")
    faults = [*_unknown(page, showings), *_wrong_boxes(page, showings), *_unmet(page, shown, options.need)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def read_requirements(page: Path) -> dict[str, Requirement]:
    """Parse the requirements by id, in the order of the page."""
    found: dict[str, Requirement] = {}
    parts: dict[str, bool] = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        if heading := HEADING.match(line):
            parts = {}
            found[heading[1]] = Requirement(heading[2], parts)
        elif box := BOX.match(line):
            parts[box[2]] = box[1] == "x"
    return found


def scan(tests: Path) -> Iterator[Showing]:
    """Find every requirement that a test below this directory names."""
    for path in sorted(tests.rglob("*.py")):
        name = path.relative_to(tests.parent).as_posix()
        yield from _in_body(ast.parse(path.read_bytes(), filename=name).body, name, inherited=[])


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="List which tests show which requirement.")
    parser.add_argument("need", nargs="*", metavar="ID", help="an id that tests must show, every part of it")
    parser.add_argument("--write", action="store_true", help="set the boxes on the page as the tests have them")
    parser.add_argument("--quiet", action="store_true", help="print faults and the count only")
    return parser.parse_args(argv)


def _in_body(body: Sequence[ast.stmt], path: str, inherited: list[ast.Call]) -> Iterator[Showing]:
    marks = inherited + [mark for statement in body if _is_pytestmark(statement) for mark in _marks([statement])]
    for statement in body:
        match statement:
            case ast.ClassDef(name=name, decorator_list=decorators) if name.startswith("Test"):
                yield from _in_body(statement.body, f"{path}::{name}", marks + _marks(decorators))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
                for mark in marks + _marks(statement.decorator_list):
                    yield from _showings(mark, f"{path}::{name}")


def _is_pytestmark(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id="pytestmark")]) | ast.AnnAssign(target=ast.Name(id="pytestmark")):
            return True
    return False


def _marks(nodes: Iterable[ast.AST]) -> list[ast.Call]:
    """Find the calls `pytest.mark.req(…)` or `mark.req(…)` within these nodes."""
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


def _is_shown(requirement: str, part: str, showings: Collection[Showing]) -> bool:
    return any(showing.requirement == requirement and showing.shows == part for showing in showings)


def _write(page: Path, showings: Collection[Showing]) -> None:
    lines, id_ = [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if heading := HEADING.match(line):
            id_ = heading[1]
        if box := BOX.match(line):
            line = f"- [{'x' if _is_shown(id_, box[2], showings) else ' '}] {box[2]}"
        lines.append(line)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _print_listing(
    page: dict[str, Requirement], showings: Sequence[Showing], shown: Collection[str], *, only: Sequence[str]
) -> None:
    for id_, one in page.items():
        if only and id_ not in only:
            continue
        print(f"{id_:<6} {one.title}" + ("" if id_ in shown else "  [not shown]"))
        tests = [showing for showing in showings if showing.requirement == id_]
        for part in one.parts:
            mine = [showing.test for showing in tests if showing.shows == part]
            print(f"         {part}" + ("" if mine else "  [no test]"))
            for test in mine:
                print(f"           {test}")
        for showing in tests:
            if showing.shows not in one.parts:
                print(f"         shows no part of it: {showing.test}" + (f"  ({showing.part})" if showing.part else ""))


def _unknown(page: Collection[str], showings: Sequence[Showing]) -> Iterator[str]:
    for showing in showings:
        if showing.requirement not in page:
            yield f"{showing.test}: {showing.requirement} is not in {PAGE}"


def _wrong_boxes(page: dict[str, Requirement], showings: Sequence[Showing]) -> Iterator[str]:
    for id_, one in page.items():
        if not one.parts:
            yield f"{PAGE}: {id_} has no box. Add its parts, or `- [ ] {WHOLE}`."
        for part, is_checked in one.parts.items():
            if is_checked != _is_shown(id_, part, showings):
                how = "checked, and no test shows it" if is_checked else "not checked, and a test shows it"
                yield f"{PAGE}: {id_}, {part!r} is {how}. Run: python scripts/reqs.py --write"


def _unmet(page: dict[str, Requirement], shown: Collection[str], needed: Sequence[str]) -> Iterator[str]:
    for need in needed:
        if need not in page:
            yield f"{need}: not in {PAGE}"
        elif need not in shown:
            yield f"{need}: tests do not show all of it ({page[need].title})"


if __name__ == "__main__":
    sys.exit(main())
