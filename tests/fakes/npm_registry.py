"""An npm registry on loopback with one package."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fakes.package_registry import PackageRegistry, serving

PACKAGE, VERSION = "tiny-sum", "1.0.0"
_FILES = {
    "package.json": json.dumps({"name": PACKAGE, "version": VERSION, "main": "index.js"}),
    "index.js": "module.exports = (...numbers) => numbers.reduce((sum, one) => sum + one, 0)\n",
}


class NpmRegistry(PackageRegistry):
    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        tarball = f"/{PACKAGE}/-/{PACKAGE}-{VERSION}.tgz"
        match method, path:
            case "GET", found if found == f"/{PACKAGE}":
                return 200, "application/vnd.npm.install-v1+json", json.dumps(self._packument(tarball)).encode()
            case "GET", found if found == tarball:
                return 200, "application/octet-stream", _tarball()
            case "POST", "/-/npm/v1/security/advisories/bulk":
                return 200, "application/json", b"{}"
            case _:
                return 404, "application/json", b'{"error": "Not found"}'

    def _packument(self, tarball: str) -> dict[str, object]:
        body = _tarball()
        integrity = f"sha512-{base64.b64encode(hashlib.sha512(body).digest()).decode()}"
        dist = {"tarball": f"{self.url}{tarball}", "integrity": integrity}
        version = {"name": PACKAGE, "version": VERSION, "dist": dist}
        return {"name": PACKAGE, "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}


@contextmanager
def npm_registry() -> Iterator[NpmRegistry]:
    registry = NpmRegistry()
    with serving(registry):
        yield registry


def _tarball() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in _FILES.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)
