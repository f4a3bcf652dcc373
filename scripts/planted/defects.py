"""Defects to plant: where each stands in the source now, and the text with the defect."""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "toolcrib"
_FIELDS = {"name", "promise", "symbol", "file", "near", "replace", "by", "covered_by"}

# The text of each file, by its path from the root of the checkout.
Sources = Mapping[str, str]


class NoLongerApplies(Exception):
    """The place that a defect names is not there, or not once."""


@dataclass(frozen=True)
class Defect:
    """One realistic fault: one text is replaced by another in the source of a symbol, or in a file without Python."""

    name: str
    promise: str
    replace: str
    by: str
    # `module:qualname`
    symbol: str | None = None
    file: str | None = None
    # The only line of the file that contains this is above what is replaced.
    near: str | None = None
    # For SQL: a symbol of Python that uses it.
    covered_by: str | None = None


@dataclass(frozen=True)
class Planted:
    """The text of a file with a defect, and the lines of the sound text that the defect changes."""

    path: str
    text: str
    lines: frozenset[int]


@dataclass(frozen=True)
class Symbol:
    """Where a class, function or value is defined; a property has several definitions."""

    path: str
    nodes: tuple[ast.stmt, ...]

    @property
    def lines(self) -> frozenset[int]:
        return frozenset(line for node in self.nodes for line in range(first_line(node), last_line(node) + 1))


def load_defects(path: Path) -> tuple[Defect, ...]:
    """Return the defects of a file in TOML.

    Raises:
        ValueError: If a field is unknown or missing, or a name occurs twice.
    """
    rows = tomllib.loads(path.read_text()).get("defect", [])
    for row in rows:
        name = row.get("name", row)
        if unknown := row.keys() - _FIELDS:
            raise ValueError(f"Defect {name} has unknown fields: {', '.join(sorted(unknown))}.")
        if missing := {"name", "promise", "replace", "by"} - row.keys():
            raise ValueError(f"Defect {name} has no {', '.join(sorted(missing))}.")
        if ("symbol" in row) == ("file" in row):
            raise ValueError(f"Defect {name} needs either a symbol or a file.")
    names = [row["name"] for row in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Defects share a name: {', '.join(twice)}.")
    return tuple(Defect(**row) for row in rows)


def read_sources(root: Path) -> dict[str, str]:
    """Return what defects can be planted in: the package's Python and SQL, and the web UI's source."""
    package = root / "src" / PACKAGE
    web = root / "web" / "src"
    files = [
        *package.rglob("*.py"), *package.rglob("*.sql"),
        *(file for kind in ("ts", "tsx", "css") for file in web.rglob(f"*.{kind}")),
    ]  # fmt: skip
    return {str(file.relative_to(root)): file.read_text() for file in sorted(files)}


def plant(defect: Defect, sources: Sources) -> Planted:
    """Return the file with the defect.

    Raises:
        NoLongerApplies: If its place is not found exactly once, or what results is no Python.
    """
    if defect.by == defect.replace:
        raise NoLongerApplies("it replaces a text by itself")
    if defect.symbol is not None:
        symbol = find_symbol(defect.symbol, sources)
        path = symbol.path
        spans = [_span(sources[path], first_line(node), last_line(node)) for node in symbol.nodes]
        places = sorted({at for start, end in spans for at in _occurrences(sources[path], defect.replace, start, end)})
        what = defect.symbol
    else:
        assert defect.file is not None
        what = path = _find_file(defect.file, sources)
        start = 0 if defect.near is None else _after_line_with(defect.near, sources[path])
        places = list(_occurrences(sources[path], defect.replace, start, len(sources[path])))
        # The nearest one: the line says which of several is meant.
        places = places if defect.near is None else places[:1]
    if len(places) != 1:
        raise NoLongerApplies(f"its text occurs {len(places)} times in {what}")
    sound, at = sources[path], places[0]
    text = sound[:at] + defect.by + sound[at + len(defect.replace) :]
    if path.endswith(".py"):
        try:
            compile(text, path, "exec")
        except SyntaxError as error:
            raise NoLongerApplies(f"what results is no Python: {error}") from None
    return Planted(path, text, _changed_lines(defect, sound.count("\n", 0, at) + 1))


def find_symbol(name: str, sources: Sources) -> Symbol:
    """Return where a symbol is defined: in its module, or in the only other one that defines it.

    Raises:
        NoLongerApplies: If no module defines it, or several do.
    """
    module, _, qualname = name.partition(":")
    at = f"src/{module.replace('.', '/')}"
    for path in (f"{at}.py", f"{at}/__init__.py"):
        if path in sources and (nodes := _definitions(qualname, sources[path])):
            return Symbol(path, nodes)
    last = qualname.rpartition(".")[2]
    found = [
        Symbol(path, nodes)
        for path, text in sources.items()
        if path.endswith(".py") and last in text and (nodes := _definitions(qualname, text))
    ]
    if len(found) != 1:
        modules = "no module" if not found else ", ".join(symbol.path for symbol in found)
        raise NoLongerApplies(f"{qualname} is not in {module}; {modules} defines it")
    return found[0]


def first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
    return min(node.lineno, *(decorator.lineno for decorator in decorators)) if decorators else node.lineno


def last_line(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _definitions(qualname: str, text: str) -> tuple[ast.stmt, ...]:
    nodes: list[ast.stmt] = list(ast.parse(text).body)
    *outer, name = qualname.replace("<locals>.", "").split(".")
    for part in outer:
        nodes = [
            inner
            for node in _flat(nodes)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == part
            for inner in node.body
        ]
    return tuple(node for node in _flat(nodes) if name in _names(node))


def _flat(nodes: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, and those inside `if`, `try`, `with` and the like, but none inside a class or function."""
    for node in nodes:
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _flat(handler.body)


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Assign():
            return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _find_file(path: str, sources: Sources) -> str:
    if path in sources:
        return path
    moved = [other for other in sources if Path(other).name == Path(path).name]
    if len(moved) != 1:
        raise NoLongerApplies(f"{path} is not there, and {len(moved)} other files have its name")
    return moved[0]


def _after_line_with(near: str, text: str) -> int:
    lines = text.splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if near in line]
    if len(at) != 1:
        raise NoLongerApplies(f"{len(at)} lines contain {near!r}")
    return sum(len(line) for line in lines[: at[0] + 1])


def _span(text: str, first: int, last: int) -> tuple[int, int]:
    lines = text.splitlines(keepends=True)
    start = sum(len(line) for line in lines[: first - 1])
    return start, start + sum(len(line) for line in lines[first - 1 : last])


def _occurrences(text: str, part: str, start: int, end: int) -> Iterator[int]:
    at = text.find(part, start, end)
    while at >= 0:
        yield at
        at = text.find(part, at + 1, end)


def _changed_lines(defect: Defect, first: int) -> frozenset[int]:
    """Return the lines of what is replaced, without those at its edges that stay the same."""
    old, new = defect.replace.splitlines(), defect.by.splitlines()
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    changed = range(head, len(old) - tail) or range(len(old))
    # A text that begins with the end of a line changes nothing in that line.
    return frozenset(first + number for number in changed if old[number].strip()) or frozenset({first})
