"""A Python package index on loopback with one wheel, as the simple repository API (PEP 503) describes it."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fakes.package_registry import PackageRegistry, serving

PACKAGE, VERSION = "tiny-sum", "1.0.0"
WHEEL = "tiny_sum-1.0.0-py3-none-any.whl"
_INFO = "tiny_sum-1.0.0.dist-info"
_FILES = {
    "tiny_sum.py": "def tiny_sum(*numbers: int) -> int:\n    return sum(numbers)\n",
    f"{_INFO}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n",
    f"{_INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


class PythonIndex(PackageRegistry):
    @property
    def simple(self) -> str:
        """The address that installers are given."""
        return f"{self.url}/simple"

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        match method, path:
            case "GET", found if found == f"/simple/{PACKAGE}/":
                return 200, "text/html", _page()
            case "GET" | "HEAD", found if found == f"/files/{WHEEL}":
                return 200, "application/octet-stream", _wheel()
            case _:
                return 404, "text/plain", b"Not found"


@contextmanager
def python_index() -> Iterator[PythonIndex]:
    index = PythonIndex()
    with serving(index):
        yield index


def _page() -> bytes:
    digest = hashlib.sha256(_wheel()).hexdigest()
    link = f'<a href="../../files/{WHEEL}#sha256={digest}">{WHEEL}</a>'
    return f"<!DOCTYPE html>\n<html><body>\n{link}\n</body></html>\n".encode()


def _wheel() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in _FILES.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        archive.writestr(zipfile.ZipInfo(f"{_INFO}/RECORD"), _record())
    return packed.getvalue()


def _record() -> str:
    lines = []
    for name, text in _FILES.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text.encode())}\n")
    return "".join(lines) + f"{_INFO}/RECORD,,\n"
