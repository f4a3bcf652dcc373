"""The files of the client: the source of the package, without the web UI and the database's SQL."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the source from the checkout, so that there is one copy of it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "..", "..", "src").resolve()
        patterns = ("*.py", "*.tcss", "*.toml", "py.typed")
        files = [path for pattern in patterns for path in source.rglob(pattern)]
        build_data["force_include"] |= {str(path): path.relative_to(source).as_posix() for path in files}
