"""No import cycles: the module graph has none, and every package can be imported first."""

import pkgutil
import subprocess
import sys
from graphlib import TopologicalSorter

import grimp

import toolcrib
from tests.wait_until import PATIENCE

# Forks a child for each package from an interpreter without our modules, so that third-party packages load once.
_PROGRAM = """
import importlib, os, sys, traceback
for name in sys.argv[1].split():
    importlib.import_module(name)
assert not [name for name in sys.modules if name.startswith("toolcrib")]
for modules in sys.argv[2].split(";"):
    child = os.fork()
    if child == 0:
        try:
            for name in modules.split():
                importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(modules.split()[0], status)
"""
_THIRD_PARTIES = "pydantic pydantic_settings psycopg psycopg_pool fastapi structlog typer ruamel.yaml pathspec"


def test_ac1_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph("toolcrib", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    # Raises CycleError with the modules of the cycle.
    assert set(TopologicalSorter(imports).static_order()) == graph.modules


def test_ac1_every_package_imports_in_a_fresh_interpreter() -> None:
    packages: dict[str, list[str]] = {}
    for found in pkgutil.walk_packages(toolcrib.__path__, "toolcrib."):
        packages.setdefault(found.name.split(".")[1], []).append(found.name)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, _THIRD_PARTIES, ";".join(map(" ".join, packages.values()))],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    statuses = dict(line.split() for line in done.stdout.splitlines())
    assert statuses == {f"toolcrib.{package}": "0" for package in packages}, done.stderr
