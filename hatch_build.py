"""Checks before a build: a wheel or an sdist without the web UI would be a server without its pages."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Stops the build if the web UI was not built. An editable installation may lack it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or Path(self.root, "src/toolcrib/api/web/index.html").is_file():
            return
        raise SystemExit("The web UI is not built, and it is part of the package. Run `make web`, then build again.")
