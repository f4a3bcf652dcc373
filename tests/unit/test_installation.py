"""What `pip install toolcrib` installs: few packages, of bounded size; extras for the rest."""

import re
import tomllib
from importlib.metadata import PackagePath, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_PACKAGES = 70
MOST_BYTES = 140_000_000
# It has programs of PostgreSQL, and no code that we import.
NOT_TESTED = {"embedded", "dev"}


def locked(name: str) -> set[str]:
    """Return the packages of a lock file."""
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / name).read_text(), re.MULTILINE))


def extras() -> dict[str, set[str]]:
    """Return the packages that each extra names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["optional-dependencies"]
    return {extra: {re.split(r"[\[<>=]", one)[0] for one in packages} for extra, packages in named.items()}


def test_the_core_has_few_packages() -> None:
    assert len(locked("runtime.txt")) <= MOST_PACKAGES


def test_the_core_is_small() -> None:
    """Without the bytecode that Python adds on each machine, about a third more."""
    sizes = {name: sum(map(size, distribution(name).files or ())) for name in locked("runtime.txt")}
    ours = sum(path.stat().st_size for path in (ROOT / "src").rglob("*") if path.is_file() and is_installed(path))

    largest = sorted(sizes.items(), key=lambda one: -one[1])[:10]
    assert min(sizes.values()) > 0
    assert sum(sizes.values()) + ours <= MOST_BYTES, largest


def size(file: PackagePath) -> int:
    return Path(str(file.locate())).stat().st_size if is_installed(Path(file)) else 0


def is_installed(path: Path) -> bool:
    return path.suffix != ".pyc"


def test_extras_are_not_in_the_core_but_are_tested() -> None:
    optional = set().union(*(packages for extra, packages in extras().items() if extra not in NOT_TESTED))

    assert optional
    assert not optional & locked("runtime.txt")
    assert optional <= locked("dev.txt")
