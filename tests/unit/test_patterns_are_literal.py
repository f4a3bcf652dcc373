"""Python's backtracking ``re`` gets only patterns that are written in our own source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolcrib

SOURCE = Path(toolcrib.__file__).parent
TAKES_A_PATTERN = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
# Modules that build a pattern, and from what. Text from another person or a model belongs in RE2:
# use ``toolcrib.policy.patterns``.
PUT_TOGETHER = {
    "core/display_text.py": "characters to escape, from a table in the module",
    "sdk/default_agent.py": "a preference among models, from a table in the module",
    "policy/environment.py": "names of variables, from a table in the module",
    "policy/git_config.py": "names of variables, from a table in the module",
    "policy/grants.py": "the names of the mounts",
    "policy/permissions.py": "the names of the mounts",
    "policy/protected_paths.py": "protected names, from a table in the module",
    "sandbox/bubblewrap.py": "a path of the system, written in the module",
    "sandbox/egress_protocols.py": "the grammar of a request line, from pieces in the module",
    "providers/wire_history.py": "a length",
    "tools/dialects/studio_dialect.py": "the names of the mounts",
    "websearch/text_sanitizer.py": "shapes of keys, from a table in the module",
    "workspace/fs/mount_writer.py": "the name of our temporary files",
    "core/paths.py": "the names of the mounts",
    "storage/database_roles.py": "the prefix of our roles, a constant in the module",
}


def test_no_other_module_compiles_a_pattern_that_it_did_not_write() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in sorted(SOURCE.rglob("*.py"))
        if any(patterns_not_written_here(ast.parse(path.read_bytes())))
    }

    assert found == PUT_TOGETHER.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile(pattern)",
        "import re\nre.search('a' + pattern, text)",
        "import re\nre.compile(f'{pattern}')",
        "import re as r\nr.compile(pattern=pattern)",
        "from re import compile as c\nc(pattern)",
        "import fnmatch\nfnmatch.filter(names, pattern)",
        "from fnmatch import fnmatchcase\nfnmatchcase(name, pattern)",
        "from pathspec import GitIgnoreSpec",
        "import glob",
    ],
)
def test_the_search_finds_every_way_to_compile_a_pattern(source: str) -> None:
    assert any(patterns_not_written_here(ast.parse(source)))


def patterns_not_written_here(module: ast.Module) -> Iterator[ast.AST]:
    """Calls of ``re`` whose pattern is not a literal, and any use of functions that translate globs."""
    modules: set[str] = set()
    functions: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.Import(names=aliases):
                modules |= {alias.asname or alias.name for alias in aliases if alias.name == "re"}
                yield from (node for alias in aliases if alias.name in ("fnmatch", "glob", "pathspec"))
            case ast.ImportFrom(module="re", names=aliases):
                functions |= {alias.asname or alias.name for alias in aliases if alias.name in TAKES_A_PATTERN}
            case ast.ImportFrom(module="fnmatch" | "glob" | "pathspec" | "pathlib.fnmatch"):
                yield node
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)):
                takes = name in modules and attribute in TAKES_A_PATTERN
            case ast.Call(func=ast.Name(id=name)):
                takes = name in functions
            case _:
                continue
        if takes and not is_literal(node):
            yield node


def is_literal(call: ast.Call) -> bool:
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "pattern"), None)
    return isinstance(given, ast.Constant)
