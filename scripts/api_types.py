"""Generate web/src/api/schema.d.ts from the OpenAPI document. ``--check`` exits with 1 if the file is outdated."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from toolcrib.api.app import create_app
from toolcrib.settings import Settings

WEB = Path(__file__).parent.parent / "web"
TYPES = WEB / "src" / "api" / "schema.d.ts"
NODE = Path(sys.executable).with_name("node")


def main() -> int:
    made = types_of(document())
    if sys.argv[1:] != ["--check"]:
        TYPES.write_text(made)
        return 0
    if TYPES.read_text() == made:
        return 0
    print(f"{TYPES} is outdated. Run: make web-types", file=sys.stderr)
    return 1


def document() -> dict[str, Any]:
    """Return the OpenAPI document. No request is served, so it has the default settings and no services."""
    return create_app(cast("Any", SimpleNamespace(settings=Settings.model_construct(), metrics=None))).openapi()


def types_of(document: dict[str, Any]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        program = WEB / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
        return subprocess.run([NODE, program, file.name], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
