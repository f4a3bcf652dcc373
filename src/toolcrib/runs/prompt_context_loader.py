"""Collects what a session's model is told of its workspace: surroundings, skills, ``AGENTS.md`` and ``CLAUDE.md``.

Everything is read as the agent itself could read it: with the paths and protected names of one of its tools. git runs
in the sandbox only, because a repository that an agent can write names programs that git runs.
"""

import asyncio
import platform
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from toolcrib.core.errors import CallDenied, ToolFailed
from toolcrib.core.files import EntryKind
from toolcrib.core.paths import Mount, WorkspacePath, mount_root, parse_relative
from toolcrib.core.runs import RequestedCall, RequestedCallState
from toolcrib.core.tool_calls import Effects, ToolCall
from toolcrib.gate.call_pipeline import Gate
from toolcrib.policy.authorization import PathAccess, PathGuard
from toolcrib.policy.model_results import CallProgress
from toolcrib.policy.permissions import is_read_only, permission_for
from toolcrib.policy.protected_paths import PACKAGE_FOLDERS
from toolcrib.runs.loaded_run import LoadedRun
from toolcrib.runs.prompt_context import Instructions, PromptContext, unmarked
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.runtime.worker_pool import in_worker
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell import shell
from toolcrib.tools.shell.shell import Shell
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.text import skills
from toolcrib.workspace.text.content import is_binary
from toolcrib.workspace.text.skills import Skill
from toolcrib.workspace.tree import WorkspaceTree
from toolcrib.workspace.workspace_services import WorkspaceServices

# Tools that return what is in a file.
_READERS: Final = ("read", "cat", "read_multiple_files", "fs.read", "read_file", "file_read", "grep", "bash")
_NAMES: Final = ("AGENTS.md", "CLAUDE.md")
# A CLAUDE.md that only includes the other file says nothing of its own.
_INCLUDES: Final = ("@AGENTS.md", "@./AGENTS.md")
_MOST_FILE_BYTES: Final = 32_768
_MOST_SESSION_BYTES: Final = 131_072
_MOST_SKILL_BYTES: Final = 65_536
_MOST_FOLDERS: Final = 200
# No provider caches a prompt for so long. A later message gets today's date and the current branch.
_KEPT: Final = timedelta(hours=12)
_GIT: Final = (
    "git --no-optional-locks status --short --branch 2>/dev/null | head -n 21; "
    "git log -n 3 --format='%h %s' 2>/dev/null; true"
)
_GIT_SECONDS: Final = 3.0
_MOST_GIT_CHARACTERS: Final = 4_000
_WORD: Final = re.compile(r"[\w.@+/-]+")
_PROJECT: Final = mount_root(Mount.PROJECT)


class PromptContextLoader:
    """Loads, extends and saves the context of sessions. Stateless between runs."""

    def __init__(self, runs: RunStepStore, services: WorkspaceServices, gate: Gate, shell: Shell) -> None:
        self._runs = runs
        self._services = services
        self._gate = gate
        self._shell = shell

    async def prepare(self, loaded: LoadedRun) -> None:
        """Load the session's context before the model is called, and add what its last calls have made relevant."""
        context = loaded.context or await self._load(loaded)
        loaded.context = await self._with_touched(loaded, context)

    async def _load(self, loaded: LoadedRun) -> PromptContext:
        """Return the session's context; collected at the first message, and after a pause of many hours."""
        stored = await self._runs.prompt_context(loaded.run)
        known = PromptContext() if stored is None else PromptContext.from_json(stored)
        is_fresh = known.taken_at is not None and datetime.now(UTC) - known.taken_at < _KEPT
        if is_fresh or (stored is not None and loaded.run.turns):
            return known
        nested = tuple(one for one in known.instructions if one.call_id is not None)
        context = PromptContext(datetime.now(UTC), surroundings=_date(), instructions=nested)
        view = _ReadableTree(self._services, loaded)
        if view.trees:
            (directory, text), found = await asyncio.gather(self._surroundings(loaded, view), _skills(view))
            context = replace(context, directory=directory, surroundings=text, skills=found)
            loaded.instructed_folders.add(_PROJECT)
            context = await _with_instructions(context, view, [_PROJECT], None)
        await self._runs.save_prompt_context(loaded.run, context.as_json())
        return context

    async def _with_touched(self, loaded: LoadedRun, before: PromptContext) -> PromptContext:
        """Add the instructions of folders whose files the model's last calls touched for the first time."""
        context, view = before, None
        # In a thread: the calls of one message can name ten thousand paths with thirty folders above each.
        touched = await in_thread(self._touched_folders, loaded, before.directory)
        for call, of_call in touched:
            folders = [folder for folder in of_call if folder not in loaded.instructed_folders]
            if folders:
                loaded.instructed_folders.update(folders)
                view = view or _ReadableTree(self._services, loaded)
                context = await _with_instructions(context, view, folders, call)
        if context != before:
            await self._runs.save_prompt_context(loaded.run, context.as_json())
        return context

    def _touched_folders(self, loaded: LoadedRun, directory: str) -> list[tuple[RequestedCall, list[WorkspacePath]]]:
        """Return the folders that each of the model's last calls touched."""
        found = []
        for call in loaded.planned:
            progress = loaded.calls.get(call.id)
            if progress is not None and progress.state is RequestedCallState.ENDED:
                effects = self._gate.effects_of(ToolCall(call.name, call.parsed() or {}))
                found.append((call, _folders(_touched(effects, progress, directory))))
        return found

    async def _surroundings(self, loaded: LoadedRun, view: "_ReadableTree") -> tuple[str, str]:
        """Return the project's directory as commands see it, and the lines for the prompt."""
        tree = view.trees[0]
        [(_, root)] = (await tree.roots([Mount.PROJECT])).values()
        directory = self._shell.target(Mount.PROJECT, root)
        lines = [
            f"- Directory: {_place(directory, loaded.agent.directory)}",
            _date(),
            f"- Platform: {platform.system()} {platform.machine()}, {_distribution()}",
        ]
        if git := await self._git(loaded, tree):
            lines.append(f"- Git, when this conversation began:\n{git}")
        return directory, "\n".join(lines)

    async def _git(self, loaded: LoadedRun, tree: WorkspaceTree) -> str:
        """Return branch, state and last commits; empty if there is no repository or the agent may not run commands."""
        rules = loaded.agent.rules
        permission = permission_for(rules, shell.TOOL_NAME)
        if is_read_only(rules) or permission is None or not permission.allowed or not self._shell.is_available():
            return ""
        if not _exists(await tree.disks(), _PROJECT.child(".git")):
            return ""
        context = ToolContext(loaded.caller, tree, Draft(tree), time.monotonic() + _GIT_SECONDS, lambda _: None)
        try:
            async with asyncio.timeout(_GIT_SECONDS):
                output = await self._shell.look(_GIT, context, permission, seconds=_GIT_SECONDS)
        except (ToolFailed, CallDenied, TimeoutError):
            return ""
        lines = ("".join(filter(str.isprintable, line)) for line in (output or "")[:_MOST_GIT_CHARACTERS].splitlines())
        return unmarked("\n".join(f"  {line}" for line in lines))


class _ReadableTree:
    """The workspace as the agent's tools can read it. Without a tool that reads, there are no ``trees``."""

    def __init__(self, services: WorkspaceServices, loaded: LoadedRun) -> None:
        offered = {tool.name for tool in loaded.tools}
        guards = [PathGuard(loaded.caller, name) for name in _READERS if name in offered]
        self._guards = guards
        self.trees = [WorkspaceTree(services, loaded.caller, guard) for guard in guards]

    async def existing(self, paths: Iterable[WorkspacePath]) -> list[WorkspacePath]:
        """Return which files exist, by a look at the disk: nearly all do not."""
        if not self.trees or not (asked := list(paths)):
            return []
        try:
            disks = await self.trees[0].disks()
        except (ToolFailed, CallDenied):
            return []
        return await in_thread(lambda: [path for path in asked if _exists(disks, path)])

    async def entries(self, folder: WorkspacePath) -> list[str]:
        """Return the folders in a folder; none if it does not exist."""
        if not self.trees or all(guard.denial(PathAccess.READ, folder) for guard in self._guards):
            return []
        try:
            found = await in_thread((await self.trees[0].disk_at(folder)).entries, folder)
        except (ToolFailed, CallDenied):
            return []
        return sorted(entry.name for entry in found if entry.kind is EntryKind.FOLDER)

    async def read(self, path: WorkspacePath) -> bytes | None:
        """Return the content of a file, or None if no tool of the agent may read it."""
        for guard, tree in zip(self._guards, self.trees, strict=True):
            if guard.denial(PathAccess.READ, path) is None:
                try:
                    return (await tree.read(path)).body
                except (ToolFailed, CallDenied):
                    return None
        return None


async def _with_instructions(
    context: PromptContext, view: _ReadableTree, folders: list[WorkspacePath], call: RequestedCall | None
) -> PromptContext:
    for path in await view.existing(folder.child(name) for folder in folders for name in _NAMES):
        body = await view.read(path)
        if body is None or is_binary(body):
            continue
        text, digest = _shortened(body.decode(errors="replace").strip()), sha256(body).hexdigest()
        room = _MOST_SESSION_BYTES - sum(len(one.text.encode()) for one in context.instructions)
        if not text or text in _INCLUDES or context.has_given(path.display, digest) or len(text.encode()) > room:
            continue
        given = Instructions(path.display, digest, text, call.id if call else None)
        context = context.with_instructions([given])
    return context


def _exists(disks: WorkspaceDisks, path: WorkspacePath) -> bool:
    try:
        return disks(path).stat_no_symlinks(path) is not None
    except (ToolFailed, CallDenied):
        return False


async def _skills(view: _ReadableTree) -> str:
    """Return names, descriptions and files of the valid skills."""
    files: list[tuple[str, bytes]] = []
    for folder in (parse_relative(name) for name in skills.FOLDERS):
        names = await view.entries(folder)
        for path in await view.existing(folder.child(name).child(skills.FILE_NAME) for name in names):
            body = await view.read(path)
            if body is not None and len(files) < skills.MOST_SKILLS:
                files.append((path.display, body[:_MOST_SKILL_BYTES]))
    if not files:
        return ""
    try:
        parsed = await in_worker(skills.parse_skills, files)
    except ToolFailed:
        return ""
    return unmarked(skills.offered(Skill(*fields) for fields in parsed))


def _touched(effects: Effects | None, progress: CallProgress, directory: str) -> Iterator[WorkspacePath]:
    """Yield the paths that a call declared; of a command, those that it names or has changed."""
    if effects is None:
        return
    yield from effects.paths
    if effects.command is None:
        return
    result = progress.result if isinstance(progress.result, dict) else {}
    changed = ((result.get("metadata") or {}).get("changed") or {}).get("paths", ())
    for word in (*_WORD.findall(effects.command)[:_MOST_FOLDERS], *changed):
        inside = word.removeprefix(f"{directory}/") if directory else word
        try:
            yield parse_relative(inside)
        except (ToolFailed, CallDenied):
            continue


def _folders(paths: Iterable[WorkspacePath]) -> list[WorkspacePath]:
    """Return the folders of the project above the paths, and the paths themselves, which may be folders.

    Not those of installed packages: what their authors write is not meant for this project.
    """
    found: dict[WorkspacePath, None] = {}
    for path in paths:
        if path.mount is not Mount.PROJECT:
            continue
        for folder in (_PROJECT, *path.ancestors, *(() if path.is_root else (path,))):
            if not PACKAGE_FOLDERS.isdisjoint(folder.parts) or ".git" in folder.parts:
                break
            found[folder] = None
            if len(found) == _MOST_FOLDERS:
                return list(found)
    return list(found)


def _shortened(text: str) -> str:
    if len(text.encode()) <= _MOST_FILE_BYTES:
        return text
    cut = text.encode()[:_MOST_FILE_BYTES].decode(errors="ignore")
    return f"{cut}\n[The file goes on. Read the rest with a tool.]"


def _place(project: str, inside: str) -> str:
    if not inside:
        return f"{project} (file tools call it `/`)"
    return unmarked(f"{project}/{inside} (file tools call it `/{inside}`, and the project's root {project} `/`)")


def _date() -> str:
    return f"- Date: {datetime.now().astimezone():%A, %Y-%m-%d (%Z)}"


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.release()
