"""Reads git's own files: refs, packed refs, the index, and which objects exist. Runs no git and writes nothing."""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toolcrib.core.errors import ToolcribError
from toolcrib.core.files import DiskEntry, EntryKind
from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.mount_reader import MountReader

_MOST_BYTES = 64_000_000
_SYMBOLIC = "ref: "
_HEX = frozenset("0123456789abcdef")

# The index format (gitformat-index).
_INDEX_HEADER = struct.Struct(">4sLL")
_FIXED_BYTES = 40
_EXTENDED, _NAME_MASK, _STABLE_FLAGS = 0x4000, 0x0FFF, 0xB000
_SPLIT_INDEX, _SPARSE_INDEX = b"link", b"sdir"

# The pack index format, version 2 (gitformat-pack).
_PACK_MAGIC = b"\xfftOc"
_FANOUT_BYTES = 8 + 256 * 4

IndexEntry = tuple[bytes, int, int, bytes]


@dataclass(frozen=True, slots=True)
class PackedRef:
    """A ref in ``packed-refs``, with the object that an annotated tag points to."""

    value: str
    peeled: str | None = None


class GitDirectory:
    """A git directory on disk, as it is now."""

    def __init__(self, disk: MountReader, root: WorkspacePath) -> None:
        self._disk = disk
        self.root = root
        self.packed = parse_packed_refs(self.read("packed-refs") or b"")
        self.hash_bytes = 32 if b"objectformat = sha256" in (self.read("config") or b"").lower() else 20
        self._packs: list[WorkspacePath] | None = None

    def path(self, name: str) -> WorkspacePath:
        """Return the path of a file in the git directory."""
        return WorkspacePath(self.root.mount, f"{self.root.path.rstrip('/')}/{name}", self.root.scope)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if it is missing or cannot be read as a file."""
        path = self.path(name)
        try:
            return self._disk.read(path, limit=_MOST_BYTES)[0]
        except ToolcribError:
            return None

    def exists(self, name: str) -> bool:
        return self._stat(name) is not None

    def written_ns(self, name: str) -> int:
        """Return when a file was last written, or 0 if it is missing."""
        entry = self._stat(name)
        return entry.fingerprint.mtime_ns if entry else 0

    def _stat(self, name: str) -> DiskEntry | None:
        """Return the entry of a name; None if it is missing or behind a link."""
        try:
            return self._disk.stat(self.path(name))
        except ToolcribError:
            return None

    def loose(self, ref: str) -> str | None:
        """Return the value of a ref that has its own file."""
        return ref_value(self.read(ref))

    def value(self, ref: str) -> str | None:
        """Return what a ref points to: an object's id, or ``ref: …``."""
        packed = self.packed.get(ref)
        return self.loose(ref) or (packed.value if packed else None)

    def checkouts(self) -> Iterator[str]:
        """Yield the prefix of each checkout: empty for the main one, ``worktrees/NAME/`` for the others."""
        yield ""
        if self.exists("worktrees"):
            for entry in self._disk.entries(self.path("worktrees")):
                if entry.kind is EntryKind.FOLDER:
                    yield f"worktrees/{entry.name}/"

    def names(self) -> Iterator[WorkspacePath]:
        """Yield every path in the git directory."""
        for path, _ in self._disk.walk(self.root):
            yield path

    def has_object(self, oid: str) -> bool:
        """Whether an object exists, loose or in a pack. Objects borrowed from another repository count as existing."""
        if self.exists(f"objects/{oid[:2]}/{oid[2:]}") or self.exists("objects/info/alternates"):
            return True
        if self._packs is None:
            there = self._disk.entries(self.path("objects/pack")) if self.exists("objects/pack") else []
            self._packs = [self.path(f"objects/pack/{e.name}") for e in there if e.name.endswith(".idx")]
        return any(self._is_in_pack(pack, bytes.fromhex(oid)) for pack in self._packs)

    def peeled(self, ref: str, oid: str) -> str:
        """Return what an annotated tag names. Any other object, and a tag in a pack that no list peels, is itself."""
        packed = self.packed.get(ref)
        if packed is not None and packed.value == oid and packed.peeled:
            return packed.peeled
        body = self.read(f"objects/{oid[:2]}/{oid[2:]}") or b""
        try:
            kind, _, text = zlib.decompressobj().decompress(body, 200).partition(b"\0")
        except zlib.error:
            return oid
        named = text.partition(b"\n")[0].removeprefix(b"object ").decode("ascii", "replace")
        return named if kind.startswith(b"tag ") and is_object_id(named) else oid

    def _is_in_pack(self, index: WorkspacePath, oid: bytes) -> bool:
        """Search a pack's index: a table of how many ids begin with each byte, then the sorted ids."""
        [head] = self._disk.read_head(index, [(0, _FANOUT_BYTES)])
        if head[:8] != _PACK_MAGIC + b"\x00\x00\x00\x02" or len(head) < _FANOUT_BYTES:
            return False
        counts = struct.unpack(">256L", head[8:])
        first, last = counts[oid[0] - 1] if oid[0] else 0, counts[oid[0]]
        width = len(oid)
        [ids] = self._disk.read_head(index, [(_FANOUT_BYTES + first * width, (last - first) * width)])
        return any(ids[at : at + width] == oid for at in range(0, len(ids), width))


def ref_value(body: bytes | None) -> str | None:
    """Return the value in a ref's file: an object's id, or ``ref: …``. None if there is none."""
    return (body or b"").decode("utf-8", "replace").strip() or None


def branch_of(head: str | None) -> str | None:
    """Return the ref that a symbolic ref points to."""
    return head.removeprefix(_SYMBOLIC).strip() if head and head.startswith(_SYMBOLIC) else None


def is_object_id(value: str | None) -> bool:
    return value is not None and len(value) in (40, 64) and _HEX.issuperset(value)


def parse_packed_refs(body: bytes) -> dict[str, PackedRef]:
    """Parse a ``packed-refs`` file."""
    refs: dict[str, PackedRef] = {}
    last = ""
    for line in body.decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("^") and last:
            refs[last] = PackedRef(refs[last].value, line[1:].strip())
        elif line and not line.startswith("#"):
            value, _, last = line.partition(" ")
            refs[last] = PackedRef(value)
    return refs


def packed_refs_text(refs: Mapping[str, PackedRef]) -> bytes:
    """Write a ``packed-refs`` file. It does not claim to be fully peeled, so git looks at tags itself."""
    lines = ["# pack-refs with: peeled sorted "]
    for name, ref in sorted(refs.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape")):
        lines += [f"{ref.value} {name}", *([f"^{ref.peeled}"] if ref.peeled else [])]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def index_entries(body: bytes | None, *, hash_bytes: int) -> tuple[IndexEntry, ...] | None:
    """Return what an index stages: name, mode, stage and flags, and object id of each entry.

    ``git status`` rewrites an index with new timestamps; the entries stay equal. Returns None for an index that is
    split or sparse, or that cannot be parsed.
    """
    if body is None:
        return ()
    try:
        return tuple(_parse_index(body, hash_bytes))
    except (struct.error, ValueError, IndexError):
        return None


def _parse_index(body: bytes, hash_bytes: int) -> Iterator[IndexEntry]:
    magic, version, count = _INDEX_HEADER.unpack_from(body)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    at, name = _INDEX_HEADER.size, b""
    for _ in range(count):
        start = at
        mode = int.from_bytes(body[at + 24 : at + 28], "big")
        oid = body[at + _FIXED_BYTES : at + _FIXED_BYTES + hash_bytes]
        at += _FIXED_BYTES + hash_bytes
        flags = int.from_bytes(body[at : at + 2], "big")
        at += 2
        extended = 0
        if flags & _EXTENDED:
            extended = int.from_bytes(body[at : at + 2], "big")
            at += 2
        if version == 4:
            dropped, at = _offset(body, at)
            end = body.index(b"\0", at)
            name, at = name[: len(name) - dropped] + body[at:end], end + 1
        else:
            length = flags & _NAME_MASK
            end = at + length if length < _NAME_MASK else body.index(b"\0", at)
            name = body[at:end]
            at = start + (end - start + 8) // 8 * 8
        yield name, mode, flags & _STABLE_FLAGS | extended << 16, oid
    while at < len(body) - hash_bytes:
        if body[at : at + 4] in (_SPLIT_INDEX, _SPARSE_INDEX):
            raise ValueError("not a full index")
        at += 8 + int.from_bytes(body[at + 4 : at + 8], "big")


def _offset(body: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length as packs write offsets. Returns it and the next position."""
    byte = body[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = body[at]
        value = (value + 1) << 7 | byte & 0x7F
    return value, at + 1
