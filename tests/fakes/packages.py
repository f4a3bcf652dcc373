"""Archives of agent packages, valid and invalid."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any

DOCUMENT = """\
---
currentNodeId: start
stepsCompleted: [start]
---
# The workflow
"""
GRAPH = {
    "nodes": [{"id": "start"}, {"id": "plan"}, {"id": "review"}],
    "edges": [{"from": "start", "to": "plan"}, {"from": "plan", "to": "review"}],
}
AGENT = "trust: autonomous\ntoolsets: [mounts]\n"


def files_of(*, name: str = "demo", version: str = "1.0.0", files: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A manifest and these additional files."""
    return {"package.json": json.dumps({"name": name, "version": version}), **(files or {})}


def package_of(*, name: str = "demo", version: str = "1.0.0", files: Mapping[str, Any] | None = None) -> bytes:
    """A zip of these files and a manifest."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for path, body in files_of(name=name, version=version, files=files).items():
            opened.writestr(zipfile.ZipInfo(path), body, compress_type=zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def tar_of(*entries: tarfile.TarInfo, gz: bool = True, **given: Any) -> bytes:
    """A tar with the same content, followed by these entries."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz" if gz else "w:") as opened:
        for path, body in files_of(**given).items():
            entry, data = tarfile.TarInfo(path), body.encode() if isinstance(body, str) else body
            entry.size = len(data)
            opened.addfile(entry, io.BytesIO(data))
        for entry in entries:
            opened.addfile(entry, io.BytesIO(b"x" * entry.size))
    return archive.getvalue()
