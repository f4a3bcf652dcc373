"""Parses the archive of an agent package: zip, tar or tar.gz. Runs in a worker, because the input is untrusted.

Every limit applies to what was really unpacked, never to what a header promises. Only regular files are accepted: an
archive with a link, a device, a set-id bit or a path that leads out is rejected as a whole.
"""

import io
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from toolcrib.core.agents import AgentRules
from toolcrib.core.errors import BadArguments, PathOutsideMount, TooLarge, ToolcribError, error_text
from toolcrib.core.packages import PackageAgent, PackageContents, Workflow
from toolcrib.core.paths import is_valid_path, parse_mounted
from toolcrib.core.strict_json import strict_json
from toolcrib.core.tool_calls import UNSTORABLE_TEXT, is_storable_text
from toolcrib.policy.agent_definition import plain_rules_from_yaml
from toolcrib.policy.json_schema import schema_error, validation_error
from toolcrib.policy.workflows import shape_flaw
from toolcrib.runtime.worker_pool import in_worker
from toolcrib.workspace.text import frontmatter

MOST_FILES: Final = 2_000
MOST_BYTES: Final = 20_000_000
MOST_AGENTS: Final = 50
MOST_NODES: Final = 1_000
MOST_EDGES: Final = 5_000
_LONGEST_DOCUMENT: Final = 100_000
# Folders count as entries, too.
_MOST_ENTRIES: Final = 2 * MOST_FILES
_TAR_BLOCKS: Final = 2_000 * _MOST_ENTRIES

_MANIFEST: Final = "package.json"
_DOCUMENT: Final = "workflow.md"
_GRAPH: Final = "workflow.graph.json"
_SCHEMA: Final = "workflow.schema.json"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}")
_AGENT: Final = re.compile(r"agents/([^/]*)\.ya?ml")
_SET_ID: Final = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_UNREADABLE: Final = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    ValueError, OverflowError, OSError,
)  # fmt: skip


async def package_in(archive: bytes) -> PackageContents:
    """Parse an archive in a worker. Raises ``BadArguments`` with what is wrong with it."""
    plain = await in_worker(read_archive_parts, archive)
    return PackageContents(
        name=plain["name"],
        version=plain["version"],
        sha256=plain["sha256"],
        files=tuple(plain["files"]),
        agents=tuple(
            PackageAgent(name, definition, AgentRules.model_validate(rules))
            for name, definition, rules in plain["agents"]
        ),
        document=plain["document"],
        workflow=None if plain["workflow"] is None else Workflow.from_json(plain["workflow"]),
    )


def read_archive_parts(archive: bytes) -> dict[str, Any]:
    """Parse an archive into plain values that a worker can return."""
    files = _unpacked(archive)
    name, version = _manifest(files)
    document = files.get(_DOCUMENT)
    workflow = None if document is None else _workflow(document, files)
    return {
        "name": name,
        "version": version,
        "sha256": sha256(archive).digest(),
        "files": sorted(files.items()),
        "agents": _agents(files),
        "document": document,
        "workflow": None if workflow is None else workflow.as_json(),
    }


def _unpacked(archive: bytes) -> dict[str, bytes]:
    try:
        found = _from_zip(archive) if archive.startswith(b"PK") else _from_tar(archive)
        files: dict[str, bytes] = {}
        size = 0
        for path, body in found:
            if path in files:
                raise _bad(f"{path!r} appears twice")
            size += len(body)
            if len(files) >= MOST_FILES or size > MOST_BYTES:
                raise _too_much()
            files[path] = body
    except ToolcribError:
        raise
    except _UNREADABLE as error:
        raise _bad(f"not a readable zip, tar or tar.gz file ({str(error)[:200]})") from None
    for path in files:
        above = path.split("/")[:-1]
        if any("/".join(above[: depth + 1]) in files for depth in range(len(above))):
            raise _bad(f"{path!r} is below a file")
    return files


def _from_zip(archive: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        entries = opened.infolist()
        if len(entries) > _MOST_ENTRIES:
            raise _too_much()
        left = MOST_BYTES
        for entry in entries:
            # The name as stored in the archive: the library cuts names at a NUL.
            name = entry.orig_filename
            _reject_special(name, entry.external_attr >> 16)
            if entry.flag_bits & 0x1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _bad(f"{name[:200]!r} is encrypted or uses an unsupported compression")
            if entry.is_dir():
                _path(name.rstrip("/"))
                continue
            with opened.open(entry) as file:
                body = file.read(left + 1)
            left -= len(body)
            if left < 0:
                raise _too_much()
            yield _path(name), body


def _from_tar(archive: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(_inflated(archive)), mode="r:") as opened:
        for number, entry in enumerate(opened):
            if number >= _MOST_ENTRIES:
                raise _too_much()
            if entry.isdir():
                _reject_special(entry.name, entry.mode | stat.S_IFDIR)
                if entry.name.rstrip("/") not in ("", "."):
                    _path(entry.name.removeprefix("./").rstrip("/"))
                continue
            if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                raise _bad(f"{entry.name[:200]!r} is not a regular file: links and devices are not supported")
            _reject_special(entry.name, entry.mode)
            file = opened.extractfile(entry)
            assert file is not None
            yield _path(entry.name.removeprefix("./")), file.read()


def _inflated(archive: bytes) -> bytes:
    """Decompress a tar.gz. Stops at the size limit, so that a decompression bomb does no harm."""
    if not archive.startswith(b"\x1f\x8b"):
        return archive
    inflater = zlib.decompressobj(wbits=31)
    body = inflater.decompress(archive, MOST_BYTES + _TAR_BLOCKS)
    if not inflater.eof:
        raise _too_much() if inflater.unconsumed_tail else EOFError("the file is truncated")
    return body


def _reject_special(name: str, mode: int) -> None:
    # Archives of systems without Unix modes have none at all.
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _bad(f"{name[:200]!r} is not a regular file: links and devices are not supported")
    if mode & _SET_ID:
        raise _bad(f"{name[:200]!r} has a set-id or sticky bit")


def _path(name: str) -> str:
    """Check that a name is a valid path in @pkg, spelled in its normal form."""
    try:
        path = parse_mounted(f"@pkg/{name}").path
    except (BadArguments, PathOutsideMount) as error:
        raise _bad(error_text(error)) from None
    if path != f"/{name}" or not is_valid_path(path):
        raise _bad(f"{name[:200]!r} is not a path such as docs/guide.md")
    return name


def _manifest(files: dict[str, bytes]) -> tuple[str, str]:
    manifest = _object(files, _MANIFEST)
    if manifest is None:
        raise _bad(f"{_MANIFEST} is missing. Add it at the root of the archive, with `name` and `version`")
    name, version = manifest.get("name"), manifest.get("version")
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise _bad(
            f"{_MANIFEST}: `name` has lower-case letters, digits, `-` and `_`, such as `demo`; at most 40 characters"
        )
    if not (isinstance(version, str) and _VERSION.fullmatch(version)):
        raise _bad(f"{_MANIFEST}: `version` is a string such as `1.0.0`")
    return name, version


def _agents(files: dict[str, bytes]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return name, definition and rules of each agent."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for path, body in sorted(files.items()):
        named = _AGENT.fullmatch(path)
        if named is None:
            continue
        name = named[1]
        if not _NAME.fullmatch(name):
            raise _bad(f"{path}: an agent name has lower-case letters, digits, `-` and `_`; at most 40 characters")
        if name in found or len(found) >= MOST_AGENTS:
            raise _bad(f"{path}: an agent with this name already exists, or there are more than {MOST_AGENTS}")
        definition = _text(path, body)
        try:
            found[name] = definition, plain_rules_from_yaml(definition)
        except BadArguments as error:
            raise _bad(f"{path}: {error_text(error)}") from None
    return [(name, *rest) for name, rest in found.items()]


def _workflow(document: bytes, files: dict[str, bytes]) -> Workflow:
    if len(document) > _LONGEST_DOCUMENT:
        raise _bad(f"{_DOCUMENT} has more than {_LONGEST_DOCUMENT:,} bytes")
    _text(_DOCUMENT, document)
    try:
        head = frontmatter.split(document)[0]
        fields = frontmatter.fields_of(head) if head else {}
    except ToolcribError as error:
        raise _bad(f"{_DOCUMENT}: {error_text(error)}") from None
    given = fields.get("currentNodeId")
    start = given.strip() if isinstance(given, str) else ""
    graph, schema = _object(files, _GRAPH), _object(files, _SCHEMA)
    if schema is not None and (flaw := schema_error(schema)):
        raise _bad(f"{_SCHEMA}: {flaw}")
    # Without a graph there is only the starting step.
    workflow = (
        Workflow(start, frozenset({start}), frozenset(), schema) if graph is None else _graph(graph, start, schema)
    )
    if workflow.start not in workflow.nodes or not workflow.start:
        raise _bad(f"{_DOCUMENT} starts at {start[:200]!r} (`currentNodeId`), which is not a step of the workflow")
    flaw = shape_flaw(fields) or (None if schema is None else validation_error(schema, fields))
    if flaw is not None:
        raise _bad(f"{_DOCUMENT} does not match {_SCHEMA}: {flaw}")
    return workflow


def _graph(graph: dict[str, Any], start: str, schema: dict[str, Any] | None) -> Workflow:
    nodes, edges = graph.get("nodes"), graph.get("edges", [])
    if not (isinstance(nodes, list) and isinstance(edges, list)):
        raise _bad(f"{_GRAPH} needs two lists, `nodes` and `edges`")
    if len(nodes) > MOST_NODES or len(edges) > MOST_EDGES:
        raise _bad(f"{_GRAPH} has more than {MOST_NODES:,} nodes or {MOST_EDGES:,} edges")
    known = frozenset(_id(node, "id") for node in nodes)
    followed = frozenset((_id(edge, "from"), _id(edge, "to")) for edge in edges)
    if strange := sorted({end for edge in followed for end in edge} - known):
        raise _bad(f"{_GRAPH}: an edge refers to {strange[0]!r}, which is not a node")
    return Workflow(start or _id(graph, "entryNodeId"), known, followed, schema)


def _id(part: Any, field: str) -> str:
    found = part.get(field) if isinstance(part, dict) else None
    if not (isinstance(found, str) and 0 < len(found) <= 200 and found.isprintable() and found == found.strip()):
        raise _bad(f"{_GRAPH}: `{field}` is a single-line string of at most 200 characters")
    return found


def _object(files: dict[str, bytes], path: str) -> dict[str, Any] | None:
    if path not in files:
        return None
    try:
        value = strict_json(files[path])
    except ToolcribError as error:
        raise _bad(f"{path}: {error_text(error)}") from None
    if not isinstance(value, dict):
        raise _bad(f"{path} is not a JSON object")
    return value


def _text(path: str, body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _bad(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    if not is_storable_text(text):
        raise _bad(f"{path}: {UNSTORABLE_TEXT}")
    return text


def _bad(why: str) -> BadArguments:
    return BadArguments({"archive": f"{why}."}, "The package cannot be installed")


def _too_much() -> TooLarge:
    return TooLarge(f"A package has at most {MOST_FILES:,} files and {MOST_BYTES:,} bytes unpacked.")
