"""Decides whether a person is asked about an effect: after the call has run, before anything is committed.

Before the call runs, ``policy/authorization`` decides. What it cannot know then is decided here: whether the trash can
hold what the effect displaces, and whether an effect of a command is worth a question at all.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from toolcrib.core.change_sets import ChangeKind, ChangeSet, FileChange
from toolcrib.core.files import EntryKind, PathState
from toolcrib.core.mcp_servers import shown_access
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.paused_calls import ApprovedCall
from toolcrib.gate.call_stages import AuthorizedCall, ToolRun, paths_shown_to_person
from toolcrib.gate.paused_calls import PausedCalls
from toolcrib.policy.authorization import IRREVERSIBLE, Authorization, AuthorizationAction, PathGuard
from toolcrib.policy.grants import uncovered_hosts
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.workspace.fs.git_files import GitDirectory, index_entries
from toolcrib.workspace.fs.gitignore import GitignoreRules, read_rules
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.fs.outward_links import new_outward_links
from toolcrib.workspace.tree import WorkspaceTree

# The rule by which an effect of a command is applied without a question.
NOT_ASKED: Final = "effect.ignored-folders"


class EffectAuthorization:
    """Decides about effects, with the ignore rules on disk and the rows of the session."""

    def __init__(self, pauses: PausedCalls) -> None:
        self._pauses = pauses

    async def outward_links(self, change_set: ChangeSet, tree: WorkspaceTree) -> dict[WorkspacePath, str]:
        """Return the new links of a change set that lead out of the workspace, with their targets."""
        links = [
            (after.path, after.link_target)
            for change in change_set.changes
            if (after := change.after) is not None and after.link_target is not None
        ]
        return await in_thread(new_outward_links, await tree.disks(), links) if links else {}

    async def if_irreversible(
        self, authorized: AuthorizedCall, run: ToolRun, tree: WorkspaceTree
    ) -> Authorization | None:
        """Return the decision to ask about an effect that cannot be undone, if only an undoable one is allowed."""
        authorization = authorized.authorization
        displaced = run.change_set.trashed if run.change_set is not None else []
        if not authorization.undoable_only or not displaced:
            return None
        size, most = sum(one.state.size for one in displaced), tree.services.trash_bytes
        kept = await tree.services.trash.kept_bytes(tree.tenant)
        if kept + size <= most:
            return None
        reason = (
            f"It would displace {size:,} bytes that the history does not keep, such as {displaced[0].state.path}. "
            f"The trash cannot hold them: it keeps {kept:,} of at most {most:,} bytes. So this cannot be undone."
        )
        return _decided(authorization, AuthorizationAction.ASK, IRREVERSIBLE, reason)

    async def if_not_worth_asking(
        self, authorized: AuthorizedCall, run: ToolRun, tree: WorkspaceTree
    ) -> tuple[ToolRun, Authorization | None]:
        """Return the decision to apply a command's effect without a question, if nobody need be asked about it.

        That is so if all of it is inside ignored folders which the session's agent created, or about which a person was
        asked in this session. The ignore rules are those on disk, as they stood before the command. The returned run
        names the ignored folders that a person has not been asked about yet.
        """
        change_set, caller = run.change_set, authorized.caller
        if change_set is None or caller.session_id is None or authorized.effects.command is None:
            return run, None
        disks = await tree.disks()
        folders, has_others = await in_thread(_ignored_folders, disks, change_set)
        unknown = await self._not_known(authorized, folders, tree)
        run = replace(run, ignored_folders=unknown)
        if has_others or unknown or run.report.needs_approval or authorized.authorization.is_supervised:
            return run, None
        reason = "It changes only ignored folders of this session." if folders else "It only refreshes git's index."
        return run, _decided(authorized.authorization, AuthorizationAction.ALLOW, NOT_ASKED, reason)

    async def _not_known(
        self, authorized: AuthorizedCall, folders: tuple[WorkspacePath, ...], tree: WorkspaceTree
    ) -> tuple[WorkspacePath, ...]:
        """Return the folders that the session's agent did not create and that nobody was asked about in the session."""
        session_id = authorized.caller.session_id
        assert session_id is not None
        if not folders:
            return ()
        states = await tree.lookup_all(folders, aliases=True, past_links=True)
        files = [state.file.id for state in states if state.file is not None and _is_still_there(state)]
        made = await tree.services.files.made_in_session(tree.tenant, session_id, files) if files else frozenset()
        before = [one.path for one in states if one.exists and (one.file is None or one.file.id not in made)]
        asked = await self._pauses.approved_folders(tree.tenant, session_id) if before else frozenset()
        return tuple(path for path in before if path.display not in asked)


async def was_shown(authorized: AuthorizedCall, approved: ApprovedCall, proposal: ChangeSet) -> bool:
    """Check each path of a proposal again, since the agent's rules may have changed since the approval was asked.

    Returns whether the person saw every protected path. Raises ``CallDenied`` for a path that is denied now.
    """
    # Off the loop: an effect can have ten thousand paths, and each is compared with all protected names.
    return await in_thread(_was_shown, authorized, approved, proposal)


def _was_shown(authorized: AuthorizedCall, approved: ApprovedCall, proposal: ChangeSet) -> bool:
    granted, unseen = paths_shown_to_person(proposal, approved.approval), list[WorkspacePath]()
    guard = PathGuard(authorized.caller, authorized.tool.name, granted=granted, ask=unseen.append)
    on_the_way = proposal.folders_on_the_way
    for path in proposal.paths:
        if path in on_the_way:
            guard.check_name(path)
        else:
            guard.check_write(path)
    return not unseen


def asking_again(authorized: AuthorizedCall, approved: ApprovedCall) -> AuthorizedCall | None:
    """Return the call with the reason to ask again if it reaches more now than the person was shown, else ``None``.

    The owner of its MCP server may have given it a host, a secret or the workspace since, or replaced the server by
    another of the same name; and the agent's owner may have given it a host.
    """
    authorization, effects, shown = authorized.authorization, authorized.effects, approved.approval.effects
    if authorization.action is not AuthorizationAction.ASK:
        return None
    hosts = uncovered_hosts(effects.hosts, shown.get("contacts", ()))
    access = [one for one in effects.access if one not in shown.get("access", ())]
    given = [*hosts, *shown_access(access)]
    reason = authorization.reason
    if len(given) < len(hosts) + len(access):
        reason += " Since it was asked, its MCP server was replaced by another one of the same name."
    if given:
        reason += f" Since it was asked, it was given access to {', '.join(given)}."
    if reason == authorization.reason:
        return None
    return replace(authorized, authorization=replace(authorization, reason=reason))


def _decided(before: Authorization, action: AuthorizationAction, rule: str, reason: str) -> Authorization:
    checked = (*before.rules_checked, f"{rule}: {action}")
    return replace(before, action=action, rule=rule, reason=reason, rules_checked=checked, undoable_only=False)


def _ignored_folders(disks: WorkspaceDisks, change_set: ChangeSet) -> tuple[tuple[WorkspacePath, ...], bool]:
    """Return the topmost ignored folders that contain changes, and whether there are changes elsewhere."""
    rules, found, has_others = GitignoreRules(partial(read_rules, disks)), set[WorkspacePath](), False
    for change in change_set.changes:
        if _refreshes_index(disks, change):
            continue
        for state in change.states:
            candidates = (*state.path.ancestors, *([state.path] if state.kind is EntryKind.FOLDER else []))
            folder = _first_ignored(rules, candidates, found)
            if folder is None:
                has_others = True
            else:
                found.add(folder)
    return tuple(sorted(found)), has_others


def _first_ignored(
    rules: GitignoreRules, folders: Iterable[WorkspacePath], known: set[WorkspacePath]
) -> WorkspacePath | None:
    return next((one for one in folders if one in known or rules.ignores(one, folder=True)), None)


def _is_still_there(state: PathState) -> bool:
    """Whether an untracked folder on disk is the one that the history knows, and not another of the same name."""
    if state.file is None or state.node is None:
        return False
    inode = state.file.state.inode
    return inode is None or inode == state.node.identity


def _refreshes_index(disks: WorkspaceDisks, change: FileChange) -> bool:
    """Whether a change only gives git's index new timestamps, as ``git status`` does."""
    before, after = change.before, change.after
    if change.kind is not ChangeKind.MODIFIED or change.body is None or before is None or after is None:
        return False
    path = after.path
    if path.parts[-2:] != (".git", "index") or before.kind is not after.kind or before.mode != after.mode:
        return False
    repository = GitDirectory(disks(path), path.parent)
    staged = index_entries(repository.read(path.name), hash_bytes=repository.hash_bytes)
    return staged is not None and staged == index_entries(change.body, hash_bytes=repository.hash_bytes)
