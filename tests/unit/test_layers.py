"""A rule that import-linter cannot express: an allow-list of third-party packages for the core."""

import ast
import sys
from pathlib import Path

import toolcrib

CORE = Path(toolcrib.__file__).parent / "core"
ALLOWED = sys.stdlib_module_names | {"pydantic", "pydantic_core", "toolcrib"}


def test_core_imports_no_third_party_but_pydantic() -> None:
    modules = sorted(CORE.rglob("*.py"))
    strangers = {
        f"{path.name}: {name}" for path in modules for name in imported(path) if name.partition(".")[0] not in ALLOWED
    }

    assert modules
    assert not strangers


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module), level=0):
                names.add(module)
    return names
