"""An npm registry on loopback with one package, as strict as a real one: other names, hosts and methods are refused."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "registry.example.com"
PACKAGE, VERSION = "tiny-sum", "1.0.0"
_FILES = {
    "package.json": json.dumps({"name": PACKAGE, "version": VERSION, "main": "index.js"}),
    "index.js": "module.exports = (...numbers) => numbers.reduce((sum, one) => sum + one, 0)\n",
}


@dataclass
class NpmRegistry:
    """``requests`` are the methods and paths that were served or refused."""

    port: int = 0
    requests: list[str] = field(default_factory=list)

    @property
    def authority(self) -> str:
        """The host and port by which it is named."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}"

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Return the status, the content type and the body."""
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            registry.requests.append(f"{self.command} {self.path}")
            if self.headers.get("host") == registry.authority:
                status, content_type, body = registry.answer(self.command, self.path)
            else:
                status, content_type, body = 421, "text/plain", b"Another host"
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def _tarball() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in _FILES.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)
