"""Which tests run the lines that a defect changes, from a recording of all tests."""

import ast
import json
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.planted.defects import Defect, NoLongerApplies, Sources, Symbol, find_symbol, first_line, last_line, plant

# A program that runs without its site has no recorder. Its tests are those that start it.
STAND_INS = {"src/toolcrib/sandbox/fork_server.py": "toolcrib.sandbox.contained_process:_ForkServer.spawn"}
_SQL_TESTS = "tests/integration/storage/"
_WEB_TESTS = "tests/web/"


@dataclass(frozen=True)
class RecordedTest:
    """A test, how many lines it runs itself, how long it took."""

    name: str
    line_count: int
    seconds: float


class Recording:
    """The lines that each test ran, and the source at that time."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self.sources: Sources = {
            name: zlib.decompress(text).decode()
            for name, text in self._connection.execute("select path, text from source")
        }
        self._tests = {
            number: RecordedTest(name, lines, seconds)
            for number, name, lines, seconds in self._connection.execute(
                "select number, name, lines, seconds from test"
            )
        }
        self._users: dict[int, list[int]] = defaultdict(list)
        for test, fixture in self._connection.execute("select test, fixture from uses"):
            self._users[fixture].append(test)

    @property
    def tests(self) -> list[RecordedTest]:
        return list(self._tests.values())

    def reaching(self, defect: Defect) -> list[RecordedTest]:
        """Return the tests that run what the defect changes, those with the fewest lines first.

        Raises:
            NoLongerApplies: If the recorded source has no such place.
        """
        if defect.symbol is not None:
            return self._running(*self._changed(defect))
        assert defect.file is not None
        every = sorted(self._tests.values(), key=lambda test: test.line_count)
        if not defect.file.endswith(".sql"):
            return [test for test in every if test.name.startswith(_WEB_TESTS)]
        covering = (
            [] if defect.covered_by is None else self._running_symbol(find_symbol(defect.covered_by, self.sources))
        )
        stored = [test for test in every if test.name.startswith(_SQL_TESTS)]
        first = [test for test in stored if test in covering]
        return list(dict.fromkeys([*first, *stored, *covering]))

    def _changed(self, defect: Defect) -> tuple[str, frozenset[int]]:
        assert defect.symbol is not None
        symbol = find_symbol(defect.symbol, self.sources)
        try:
            return symbol.path, plant(defect, self.sources).lines
        except NoLongerApplies:
            # It has changed since; the place may be anywhere in the symbol.
            return symbol.path, symbol.lines

    def _running_symbol(self, symbol: Symbol) -> list[RecordedTest]:
        return self._running(symbol.path, symbol.lines)

    def _running(self, path: str, lines: frozenset[int]) -> list[RecordedTest]:
        if stand_in := STAND_INS.get(path):
            return self._running_symbol(find_symbol(stand_in, self.sources))
        return self._meeting(run_at_call(path, lines, self.sources))

    def _meeting(self, places: dict[str, int]) -> list[RecordedTest]:
        own: set[int] = set()
        by_fixture: set[int] = set()
        for path, mask in places.items():
            rows = self._connection.execute("select test, fixture, bits from lines where path = ?", (path,))
            for test, fixture, bits in rows:
                if not int.from_bytes(bits, "little") & mask:
                    continue
                if test is not None:
                    own.add(test)
                else:
                    by_fixture.update(self._users[fixture])
        return [
            self._tests[number]
            for group in (own, by_fixture - own)
            for number in sorted(group, key=lambda number: self._tests[number].line_count)
        ]


def run_at_call(path: str, lines: frozenset[int], sources: Sources) -> dict[str, int]:
    """Return lines, as masks by file, that run when what was changed is used.

    A line in a function is run with its whole statement. What runs when a module is imported is used elsewhere: a
    header by the body of its function, a value by the lines that name it, and otherwise by any function of its module.
    """
    text = sources[path]
    in_functions = function_lines(text)
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    whole: set[int] = set()
    names: set[str] = set()
    for line in lines:
        # The innermost statement has the largest first line.
        node = max(
            (node for node in statements if first_line(node) <= line <= last_line(node)),
            key=lambda node: (first_line(node), -last_line(node)),
            default=None,
        )
        if node is None:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not in_functions >> line & 1:
            whole |= {*range(node.body[0].lineno, last_line(node) + 1)}
        elif in_functions >> line & 1:
            whole |= _part(node, line)
        else:
            names |= _assigned(node)
    mask = _mask(whole) & in_functions
    if mask:
        return {path: mask}
    places = _naming(names, sources) if names else {}
    return places or {path: in_functions}


@cache
def function_lines(text: str) -> int:
    """Return a mask of the lines that run when a function is called, not when the module is imported."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines |= {*range(first_line(node.body[0]), last_line(node) + 1)}
    return _mask(lines)


def _part(node: ast.stmt, line: int) -> set[int]:
    """Return the lines that run with this line of a statement: without the statements in it, unless it begins them."""
    fields = ("body", "handlers", "orelse", "finalbody", "cases")
    parts: list[ast.AST] = [part for field in fields for part in getattr(node, field, [])]
    # A handler or a case has a line of its own, and statements.
    inner = [part for one in parts for part in (getattr(one, "body", []) if not isinstance(one, ast.stmt) else [one])]
    if not inner:
        return {*range(first_line(node), last_line(node) + 1)}
    header_end = min(part.lineno for part in inner)
    if line < max(header_end, node.lineno + 1):
        return {*range(first_line(node), max(header_end, node.lineno + 1))}
    # `else`, `except` and `case` run no line, or only one, themselves.
    return {line, min((part.lineno for part in inner if part.lineno > line), default=line)}


def _assigned(node: ast.stmt) -> set[str]:
    match node:
        case ast.Assign(targets=targets):
            return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def _naming(names: set[str], sources: Sources) -> dict[str, int]:
    places: dict[str, int] = {}
    for path, text in sources.items():
        if not path.endswith(".py") or not any(name in text for name in names):
            continue
        lines = {
            node.lineno
            for node in ast.walk(ast.parse(text))
            if (isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load))
            or (isinstance(node, ast.Attribute) and node.attr in names)
        }
        if mask := _mask(lines) & function_lines(text):
            places[path] = mask
    return places


def _mask(lines: Iterable[int]) -> int:
    mask = 0
    for line in lines:
        mask |= 1 << line
    return mask


def write_recording(raw: Path, sources: Sources, path: Path) -> None:
    """Put what the processes of a run wrote into one file."""
    contexts: dict[str, dict[str, object]] = defaultdict(dict)
    for file in raw.glob("*.contexts"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            contexts[row["context"]].update(row)
    masks: dict[tuple[str, str], int] = defaultdict(int)
    for file in raw.glob("*.lines"):
        for line in file.read_text().splitlines():
            context, name, numbers = line.split("\t")
            masks[context, f"src/toolcrib/{name}"] |= _mask(map(int, numbers.split(",")))
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(_SCHEMA)
        connection.executemany(
            "insert into source values (?, ?)", [(name, zlib.compress(text.encode())) for name, text in sources.items()]
        )
        _write_contexts(connection, contexts, masks, sources)
    connection.close()


_SCHEMA = """
create table source (path text primary key, text blob not null);
create table test (
    number integer primary key, name text not null unique, lines integer not null, seconds real not null
);
create table fixture (number integer primary key, name text not null unique);
create table uses (test integer not null, fixture integer not null);
create table lines (path text not null, test integer, fixture integer, bits blob not null);
create index lines_of_path on lines (path);
"""


def _write_contexts(
    connection: sqlite3.Connection,
    contexts: dict[str, dict[str, object]],
    masks: dict[tuple[str, str], int],
    sources: Sources,
) -> None:
    by_owner: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (context, name), mask in masks.items():
        row = contexts.get(context, {})
        # What a module runs when it is imported says nothing about the test that came first.
        called = mask & function_lines(sources[name]) if name in sources else 0
        for kind in ("test", "fixture"):
            if kind in row and called:
                by_owner[kind, str(row[kind])][name] |= called
    tests = {str(row["test"]): row for row in contexts.values() if "test" in row}
    test_numbers = {name: number for number, name in enumerate(sorted(tests), 1)}
    shared = {str(row["fixture"]) for row in contexts.values() if "fixture" in row}
    fixture_numbers = {name: number for number, name in enumerate(sorted(shared), 1)}
    connection.executemany(
        "insert into fixture values (?, ?)", [(number, name) for name, number in fixture_numbers.items()]
    )
    for name, number in test_numbers.items():
        own = by_owner.get(("test", name), {})
        count = sum(mask.bit_count() for mask in own.values())
        connection.execute("insert into test values (?, ?, ?, ?)", (number, name, count, tests[name].get("seconds", 0)))
        fixtures = tests[name]["fixtures"]
        assert isinstance(fixtures, list)
        connection.executemany(
            "insert into uses values (?, ?)",
            [(number, fixture_numbers[fixture]) for fixture in fixtures if fixture in fixture_numbers],
        )
    for (kind, owner), files in by_owner.items():
        test = test_numbers[owner] if kind == "test" else None
        fixture = fixture_numbers[owner] if kind == "fixture" else None
        connection.executemany(
            "insert into lines values (?, ?, ?, ?)",
            [
                (path, test, fixture, mask.to_bytes(mask.bit_length() // 8 + 1, "little"))
                for path, mask in files.items()
            ],
        )
