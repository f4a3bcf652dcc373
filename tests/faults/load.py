"""Clients that change a workspace without pause, and know exactly which bytes must be there when the server dies."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

import httpx2

# Paths to contents; a folder has none.
Tree = Mapping[str, bytes | None]

SHARED = "/shared.md"
_BULK = 30


@dataclass
class Client:
    """Works in its own folder, and on a file that all share.

    ``tree`` is what was acknowledged. ``doubtful`` is the tree if the call in progress at the kill was executed.
    """

    http: httpx2.AsyncClient
    workspace_id: str
    name: str
    random: Random
    tree: dict[str, bytes | None] = field(default_factory=dict)
    doubtful: dict[str, bytes | None] | None = None
    doubtful_line: str | None = None
    lines: list[str] = field(default_factory=list)
    versions: dict[str, bytes] = field(default_factory=dict)
    calls: int = 0
    _number: int = 0
    _bulk: str = ""

    @property
    def home(self) -> str:
        return f"/{self.name}"

    async def prepare(self) -> None:
        """Create a folder with so many files that moving it is a large change set."""
        self._bulk = self._new("bulk")
        await self._change("mkdir", {"path": self._bulk}, {**self.tree, self.home: None, self._bulk: None})
        for number in range(_BULK):
            await self._put(f"{self._bulk}/{number}.txt", overwrite=False)

    async def work(self) -> None:
        """Run until the server is gone."""
        deeds: list[Callable[[], Awaitable[None]]] = [
            self._write, self._write, self._overwrite, self._edit, self._touch, self._touch_new,
            self._move, self._remove, self._make_folder, self._remove_folder, self._move_bulk, self._add_line,
            self._read_shared, self._list,
        ]  # fmt: skip
        try:
            while True:
                await self.random.choice(deeds)()
        except httpx2.TransportError:
            return

    def settle(self, found: Tree) -> None:
        """Continue from the tree after a restart; it must be one of the two possible ones."""
        possible = [self.tree] if self.doubtful is None else [self.tree, self.doubtful]
        digests = [{path: _digest(body) for path, body in tree.items()} for tree in possible]
        assert found in digests, f"{self.name} finds {found.items() ^ digests[0].items()} beyond what was acknowledged"
        self.tree = possible[digests.index(dict(found))]
        self.doubtful = None
        # A moved folder may be under its old or its new name.
        [self._bulk] = [path for path in self._folders() if path.startswith(f"{self.home}/bulk")]

    def settle_line(self, found: list[str]) -> None:
        if self.doubtful_line in found:
            self.lines.append(str(self.doubtful_line))
        self.doubtful_line = None

    # Actions of a client

    async def _write(self) -> None:
        folder = self.random.choice([self.home, f"{self.home}/{self._number}/deep"])
        await self._put(f"{folder}/{self._count()}.txt", overwrite=False)

    async def _overwrite(self) -> None:
        for path in self._some_file():
            await self._put(path, overwrite=True)

    async def _edit(self) -> None:
        for path in self._some_file():
            body = self.tree[path]
            assert body is not None
            line = f"{self.name} {self._count()}\n"
            given = {"path": path, "insert_line": 0, "insert_content": line}
            await self._change("edit", given, {**self.tree, path: line.encode() + body})

    async def _touch(self) -> None:
        for path in self._some_file():
            await self._change("touch", {"path": path}, self.tree)

    async def _touch_new(self) -> None:
        path = self._new("touched")
        await self._change("touch", {"path": path}, {**self.tree, path: b""})

    async def _move(self) -> None:
        for source in self._some_file():
            if source.startswith(f"{self._bulk}/"):
                return
            to = self._new("moved")
            after = {to if path == source else path: body for path, body in self.tree.items()}
            await self._change("mv", {"source": source, "destination": to}, after)

    async def _remove(self) -> None:
        for path in self._some_file():
            if not path.startswith(f"{self._bulk}/"):
                await self._change("rm", {"path": path}, _without(self.tree, path))

    async def _make_folder(self) -> None:
        path = self._new("folder")
        await self._change("mkdir", {"path": path}, {**self.tree, path: None})

    async def _remove_folder(self) -> None:
        empty = [f for f in self._folders() if not any(path.startswith(f"{f}/") for path in self.tree)]
        if empty:
            path = self.random.choice(empty)
            await self._change("rm", {"path": path}, _without(self.tree, path))

    async def _move_bulk(self) -> None:
        source, to = self._bulk, self._new("bulk")
        after = {_moved(path, source, to): body for path, body in self.tree.items()}
        await self._change("mv", {"source": source, "destination": to}, after)
        self._bulk = to

    async def _add_line(self) -> None:
        self.doubtful_line = line = f"{self.name}-{self._count()}"
        given = {"path": SHARED, "insert_line": 0, "insert_content": f"{line}\n"}
        await self._change("edit", given, self.tree)
        self.lines.append(line)
        self.doubtful_line = None

    async def _read_shared(self) -> None:
        """Changes nothing, but stores the file's state on disk: concurrent changes must not break it."""
        await self._call("read", {"path": SHARED})

    async def _list(self) -> None:
        await self._call("ls", {"path": self.home, "recursive": True})

    async def _put(self, path: str, *, overwrite: bool) -> None:
        body = self.random.randbytes(self.random.choice([1, 100, 20_000])).hex().encode()
        parents = {folder: None for folder in _parents(path) if folder not in self.tree}
        given = {"path": path, "content": body.decode(), "overwrite": overwrite}
        await self._change("write", given, {**self.tree, **parents, path: body})

    async def _change(self, tool: str, arguments: dict[str, Any], after: Tree) -> None:
        """Make one call. Until it is acknowledged, both trees are possible."""
        self.doubtful = dict(after)
        result = await self._call(tool, arguments)
        self.calls += 1
        self.tree, self.doubtful = self.doubtful, None
        if "version_id" in result:
            self.versions[result["version_id"]] = bytes.fromhex(result["hash"])

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        answer = await self.http.post(f"/workspaces/{self.workspace_id}/tools", json={"tool": tool, "args": arguments})
        assert answer.status_code == 200, (tool, arguments, answer.text)
        return answer.json()["result"]

    # Choice of the next path

    def _some_file(self) -> Iterator[str]:
        files = [path for path, body in self.tree.items() if body is not None]
        if files:
            yield self.random.choice(files)

    def _folders(self) -> list[str]:
        return [path for path, body in self.tree.items() if body is None and path not in (self.home, self._bulk)] + (
            [self._bulk] if self._bulk in self.tree else []
        )

    def _new(self, what: str) -> str:
        return f"{self.home}/{what}{self._count()}"

    def _count(self) -> int:
        self._number += 1
        return self._number


async def at_full_speed(clients: list[Client], working: list[asyncio.Task[None]], *, calls: int) -> None:
    """Return when every client has had some calls acknowledged in this round."""
    wanted = [client.calls + calls for client in clients]
    while any(client.calls < enough for client, enough in zip(clients, wanted, strict=True)):
        done, _ = await asyncio.wait(working, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            raise AssertionError("A client ended before the kill.")


def _digest(body: bytes | None) -> bytes | None:
    return None if body is None else sha256(body).digest()


def _parents(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]


def _without(tree: Tree, path: str) -> dict[str, bytes | None]:
    return {other: body for other, body in tree.items() if other != path}


def _moved(path: str, source: str, to: str) -> str:
    return to + path[len(source) :] if path == source or path.startswith(f"{source}/") else path
