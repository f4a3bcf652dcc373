"""One failure of our machinery at each boundary: what person, model and log are told is what happened.

No failure of a process, the disk, the database or a deadline of ours may be told as a fact about somebody's work. The
table of the campaign (`make campaigns ONLY=kills`) has every answer.
"""

import asyncio
import json
import os
import re
import resource
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls, migrated_database, urls_of
from tests.fakes import strictness
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.database_server import CuttableProxy
from tests.faults.namespaces import AS_USER
from tests.faults.scripted import said
from tests.faults.server import TOOLCRIB, Server, client_of
from tests.wait_until import PATIENCE

pytestmark = pytest.mark.xdist_group("kill")

PROVIDER = "openai-compatible"
FREE = f"""
provider: {PROVIDER}
model: fake
trust: autonomous
context_window: 100000
tool_permissions: {{write: {{allowed: true}}, bash: {{allowed: true}}}}
"""
GUIDED = "trust: guided\ntool_permissions: {write: {allowed: true}}"
DISK_BYTES = 48 << 20
# How long a fault lasts for the run, which nobody waits for.
FOR_THE_RUN = 3.0
# What no failure of ours may be called.
FALSE = re.compile(
    r"Internal server error|Other calls|[Tt]oo costly|[Tt]oo large|is empty|changed since|No such file|not found", re.I
)


@dataclass(frozen=True)
class Fault:
    """A failure, how its victims are told, and what the log has about it."""

    name: str
    told: str
    logged: str


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("worker dies", r"worker process of this server ended", r"worker\.died_again"),
        Fault("deadline of a comparison", r"more than the 5 s of computing", r""),
        Fault("disk full", r"[Tt]he disk (of the server )?is full", r"call\.server_failed.*No space left"),
        Fault("out of descriptors", r"too many files and connections open|database", r"Too many open files"),
        Fault("database away", r"database is temporarily unavailable", r"database\.unavailable"),
        Fault("statement timeout", r"database is temporarily unavailable", r"database\.unavailable|database_error"),
        Fault(
            "lock timeout",
            r"database is busy: a lock",
            r"run_worker\.\w+.*lock in it was not free|lock in it was not free.*run_worker",
        ),
    )
}
# Of tables that every call and every run writes to.
WRITTEN = ("messages", "tool_calls", "change_sets", "audit_records")


@dataclass
class Told:
    """What one party was told at one boundary."""

    text: str
    is_done: bool
    is_unknown: bool = False


@dataclass
class Script:
    """A model whose calls come when the fault is there."""

    is_there: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def answer(self, request: Received) -> Answer:
        if "messages" not in request.body:
            return plain(200, {"object": "list", "data": []})
        if refusal := strictness.openai_refusal(request.body):
            return plain(400, {"error": {"message": refusal}})
        last = request.body["messages"][-1]
        if last["role"] != "user" or not (found := re.search(r"Fault (\d+)", json.dumps(last["content"]))):
            return said("Done.")
        self.asked.set()
        return said(
            "Now.",
            ("write", {"path": f"/run/{found[1]}.txt", "content": "x\n"}),
            ("bash", {"command": f"mkdir -p shell; echo x > shell/run-{found[1]}.txt"}),
            held=self.is_there,
        )


class Site:
    """A server whose disk is small, whose database is behind a proxy, and which somebody uses."""

    def __init__(self, server: Server, proxy: CuttableProxy, urls: DatabaseUrls, model: ModelServer) -> None:
        self.server = server
        self.proxy = proxy
        self.urls = urls
        self.model = model
        self.script = Script()
        model.responder = lambda request: self.script.answer(request)
        self.number = 0
        self.table: list[str] = []

    async def open(self) -> None:
        self.cluster = cluster = await ServerCluster.opened(self.server)
        free = await cluster.agent(self.server, self.model, FREE, provider=PROVIDER)
        self.session = await cluster.session(self.server, free)
        self.key = await self._key_of(free)
        guided = await cluster.send(self.server, "POST", cluster.at("agents"), {"name": "g", "definition": GUIDED})
        self.guided_key = await self._key_of(guided["id"])
        self.truth = Workspace(self.urls.owner, UUID(cluster.workspace), self.project)
        # A change that only a worker compares.
        self.reviewed = await cluster.session(self.server, free)
        for word in ("old", "new"):
            lines = "".join(f"{word} {n}\n" if n % 3 else f"{n}\n" for n in range(4_000))
            args = {"path": "/reviewed.txt", "content": lines, "overwrite": True}
            call = {"tool": "write", "args": args, "session_id": self.reviewed if word == "new" else None}
            await cluster.send(self.server, "POST", cluster.at("tools"), call)

    async def _key_of(self, agent: str) -> str:
        made = await self.cluster.send(self.server, "POST", self.cluster.at(f"agents/{agent}/keys"), {"name": "k"})
        return str(made["secret"])

    @property
    def project(self) -> Path:
        """The workspace's files, on a disk that only the server's processes see at that path."""
        inside = self.server.data_dir / "workspaces" / self.cluster.workspace / "project"
        return self.inside(inside)

    def inside(self, path: Path) -> Path:
        return Path(f"/proc/{self.server.pid}/root{path}")

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Let a part of our machinery fail."""
        with ExitStack() as stack:
            match name:
                case "worker dies":
                    stack.enter_context(self._signalled_workers(signal.SIGKILL))
                case "deadline of a comparison":
                    # As the kernel does at the limit of a worker's CPU time.
                    stack.enter_context(self._signalled_workers(signal.SIGXCPU))
                case "disk full":
                    stack.enter_context(self._full_disk())
                case "out of descriptors":
                    stack.enter_context(self._no_descriptors())
                case "database away":
                    self.proxy.refuse()
                    stack.callback(self.proxy.accept)
                case "statement timeout":
                    stack.enter_context(self._failing_statements("query_canceled"))
                case "lock timeout":
                    stack.enter_context(self._failing_statements("lock_not_available"))
            yield

    @contextmanager
    def _signalled_workers(self, number: signal.Signals) -> Iterator[None]:
        is_over = threading.Event()

        def end_workers() -> None:
            while not is_over.wait(0.002):
                for pid in _children(self.server.pid):
                    with suppress(OSError):
                        if b"worker_program" in Path(f"/proc/{pid}/cmdline").read_bytes():
                            os.kill(pid, number)

        ending = threading.Thread(target=end_workers)
        ending.start()
        try:
            yield
        finally:
            is_over.set()
            ending.join()

    @contextmanager
    def _full_disk(self) -> Iterator[None]:
        filler = self.inside(self.server.data_dir) / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while file.write(b"\0" * size):
                        pass
        try:
            yield
        finally:
            filler.unlink()

    @contextmanager
    def _no_descriptors(self) -> Iterator[None]:
        pid = self.server.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        lowest = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    @contextmanager
    def _failing_statements(self, condition: str) -> Iterator[None]:
        """Fail what is written, as PostgreSQL does when a limit of an operator's, or the wait for a lock, is over."""
        function = f"toolcrib.fails_{condition}"
        with psycopg.connect(self.urls.owner, autocommit=True) as connection:
            connection.execute(
                f"create function {function}() returns trigger language plpgsql as "
                f"$$ begin raise exception using errcode = '{condition}'; end $$".encode()
            )
            for table in WRITTEN:
                connection.execute(
                    f"create trigger fails before insert or update on toolcrib.{table} "
                    f"for each statement execute function {function}()".encode()
                )
            try:
                yield
            finally:
                connection.execute(f"drop function {function} cascade".encode())

    async def play(self, fault: Fault) -> dict[str, Told]:
        """Cause the failure while everything happens, and return what each was told."""
        self.number += 1
        number, cluster, server = self.number, self.cluster, self.server
        self.script = Script()
        logged = len(server.logged())
        asked = {"tool": "write", "args": {"path": f"/asked/{number}.txt", "content": "x\n"}}
        async with AsyncExitStack() as opened:
            # Connections from before: a server without descriptors accepts none.
            person, other, agent, second = [
                await opened.enter_async_context(client_of(server, token))
                for token in (cluster.token, cluster.token, self.key, self.key)
            ]
            async with client_of(server, self.guided_key) as http:
                pause = (await http.post(cluster.at("tools"), json=asked)).json()["result"]
            shown = await cluster.send(server, "GET", cluster.at(f"paused-calls/{pause['pause_id']}"))
            decision = {"approved": True, "arguments_sha256": shown["arguments_sha256"]}
            run = await cluster.say(server, self.session, f"Fault {number}")
            async with asyncio.timeout(PATIENCE):
                await self.script.asked.wait()
            await asyncio.gather(*(one.get(cluster.at("sessions")) for one in (person, other, agent, second)))
            with self.fault(fault.name):
                self.script.is_there.set()
                answers = await asyncio.gather(
                    person.get(cluster.at(f"sessions/{self.reviewed}/review")),
                    agent.post(cluster.at("tools"), json=_call("write", path=f"/called/{number}.txt", content="x\n")),
                    second.post(
                        cluster.at("tools"), json=_call("bash", command=f"mkdir -p shell; echo x > shell/{number}.txt")
                    ),
                    other.post(cluster.at(f"paused-calls/{pause['pause_id']}/decision"), json=decision),
                )
                await self._run_is_over(run, FOR_THE_RUN)
        await self._run_is_over(run, PATIENCE)
        review, write, bash, decided = answers
        told = {"review": _review(review), "write": _answered(write), "bash": _answered(bash)}
        told |= self._told_to_model(number)
        told["run"] = self._run(run)
        told["approval"] = await self._approval(pause, decided, decision)
        self._check(fault, told, server.logged()[logged:])
        return told

    def _effects(self) -> dict[str, Path]:
        """Where the effect of each is, if it took place."""
        n, at = self.number, self.project
        return {
            "write": at / f"called/{n}.txt",
            "bash": at / f"shell/{n}.txt",
            "model: write": at / f"run/{n}.txt",
            "model: bash": at / f"shell/run-{n}.txt",
            "approval": at / f"asked/{n}.txt",
        }

    def _check(self, fault: Fault, told: dict[str, Told], log: str) -> None:
        wrong: list[tuple[str, object, object]] = []
        effects = {what: path.exists() for what, path in self._effects().items()}
        for what, one in told.items():
            happened = effects.get(what)
            self.table.append(
                f"| {fault.name} | {what} | {one.text.replace('|', '/')} | "
                f"{'' if happened is None else 'took effect' if happened else 'no effect'} |"
            )
            is_true = happened is None or one.is_unknown or happened == one.is_done
            is_named = one.is_done or re.search(fault.told, one.text) is not None
            if not is_true or not is_named or FALSE.search(one.text):
                wrong.append((what, one, happened))
        if fault.logged and not re.search(fault.logged, log, re.DOTALL):
            wrong.append(("log", log[-3_000:], fault.logged))
        assert wrong == []

    async def _run_is_over(self, run: str, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._row(run)[0] != "ended":
                    await asyncio.to_thread(self._row, run)
                return
        assert seconds < PATIENCE, self.server.logged()[-3_000:]

    def _row(self, run: str) -> tuple[Any, ...]:
        [row] = self.truth.rows("select state, end_reason, error from toolcrib.runs where id = %(run)s", run=run)
        return row

    def _run(self, run: str) -> Told:
        _, reason, error = self._row(run)
        return Told(f"{reason} {error['message'] if error else ''}".strip(), reason == "done")

    def _told_to_model(self, number: int) -> dict[str, Told]:
        """Return the results of its calls, as the model read them."""
        found = dict[str, Told]()
        for request in self.model.received:
            names: dict[str, str] = {}
            is_this = False
            for message in request.body.get("messages", ()):
                if message["role"] == "user":
                    is_this = re.search(rf"Fault {number}\b", json.dumps(message["content"])) is not None
                names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
                if message["role"] == "tool" and is_this:
                    content = message["content"]
                    text = content if isinstance(content, str) else json.dumps(content)
                    found[f"model: {names[message['tool_call_id']]}"] = _result(text)
        return found

    async def _approval(self, pause: dict[str, Any], decided: httpx2.Response, decision: dict[str, Any]) -> Told:
        """Return what the person and then the caller were told. A decision that was not taken is made again."""
        told = [_answered(decided)]
        async with client_of(self.server, self.cluster.token) as http:
            if not decided.is_success:
                path = f"paused-calls/{pause['pause_id']}/decision"
                again = await http.post(self.cluster.at(path), json=decision)
                told.append(Told(f"then {again.status_code}", is_done=True))
                assert again.status_code in (200, 409), again.text
            async with asyncio.timeout(PATIENCE):
                while (call := (await http.get(self.cluster.at(f"calls/{pause['call_id']}"))).json())["state"] in (
                    "paused",
                    "running",
                ):
                    pass
        error = call["error"]
        told.append(Told(f"call {call['state']} {error['message'] if error else ''}".strip(), error is None))
        return Told("; ".join(one.text for one in told), error is None, is_unknown=call["state"] == "unknown")


def _call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def _answered(answer: httpx2.Response) -> Told:
    body = answer.json()
    result = body.get("result") if answer.is_success else None
    if isinstance(result, dict) and result.get("is_error"):
        # As the tool's dialect says it.
        return _failed(f"{answer.status_code} {result['metadata'].get('code')}: {result['output']}")
    if answer.is_success:
        return Told(f"{answer.status_code}", is_done=True)
    return _failed(f"{answer.status_code} {body['code']}: {body['error']}")


def _failed(text: str) -> Told:
    return Told(text, is_done=False, is_unknown="unknown whether it took effect" in text)


def _review(answer: httpx2.Response) -> Told:
    if not answer.is_success:
        return _answered(answer)
    [file] = [one for one in answer.json()["files"] if one["path"] == "/reviewed.txt"]
    if file["flaw"] is None:
        assert file["hunks_total"] > 0, "nothing is shown, and nothing is said about it"
    return Told(f"200 {file['flaw'] or ''}".strip(), is_done=file["flaw"] is None)


def _result(text: str) -> Told:
    """What a result says: JSON, or what a command printed, or an error."""
    with suppress(ValueError):
        result = json.loads(text)
        if not (isinstance(result, dict) and (result.get("error") or result.get("is_error"))):
            return Told("its result", is_done=True)
    return Told("its result", is_done=True) if text == "(nothing)" else _failed(text)


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _behind(url: str, proxy: CuttableProxy) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}"))


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("told")
    (directory / "data").mkdir()
    with migrated_database() as name, ExitStack() as opened:
        urls = urls_of(name)
        proxy = CuttableProxy(urlsplit(urls.app).port or 5432)
        proxy.start()
        opened.callback(proxy.stop)
        behind = DatabaseUrls(owner=urls.owner, app=_behind(urls.app, proxy), system=_behind(urls.system, proxy))
        server = opened.enter_context(Server(directory, behind))
        # A disk of its own, in namespaces of an ordinary user.
        mount = f'mount -t tmpfs -o size={DISK_BYTES} tmpfs "$0" && exec "$@"'
        own = ["unshare", "--user", "--map-root-user", "--mount", "--", "sh", "-c", mount, str(directory / "data")]
        server.program = [*own, *AS_USER, TOOLCRIB]
        server.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_DATABASE_ANSWER_SECONDS": "2",
            "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "4",
        }
        await asyncio.to_thread(server.start)
        async with model_server(ModelServer()) as model:
            made = Site(server, proxy, urls, model)
            await made.open()
            yield made
            print("\n".join(["", *made.table]))  # noqa: T201 - the table of a campaign, shown with -s


@pytest.mark.gate_cases(3)
@pytest.mark.parametrize("name", FAULTS)
async def test_what_everybody_is_told_of_a_failure_is_what_happened(site: Site, name: str) -> None:
    await site.play(FAULTS[name])
