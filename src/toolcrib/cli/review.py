"""``toolcrib review``: shows what an agent changed, and keeps or reverts it by file and by hunk."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, in_workspace
from toolcrib.cli.sessions import SESSION_HELP, find_session
from toolcrib.cli.terminal_text import HangingLine, Line, one_line, print_json, print_lines, shown_diff
from toolcrib.client import FileDecisionIn, ReviewDecisionOut, ReviewFileOut, ReviewHunkOut, ReviewOut
from toolcrib.core.errors import Misconfigured, NotFound

# A person's decision is a call of this tool in the session.
REVIEW_TOOL = "review_decide"
NOTHING = "No changes wait for a review."
_HELP = "k keep   r revert   s skip   h by hunk   q stop"

Choice = Literal["keep", "revert"]


@in_workspace
def review(
    location: WorkspaceLocation,
    session: Annotated[str, typer.Option(help=f"The session: {SESSION_HELP}")] = "last",
    keep: Annotated[list[str] | None, typer.Option(metavar="PATH", help="Keep this file; can be repeated.")] = None,
    revert: Annotated[list[str] | None, typer.Option(metavar="PATH", help="Revert this file; can be repeated.")] = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Keep everything.")] = False,
    revert_all: Annotated[bool, typer.Option("--revert-all", help="Revert everything.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Review what the agent changed: show the diff, and keep or revert it by file and by hunk.

    At a terminal it asks about each file. Exits with 1 if someone else changed the same lines; those files stay.

    Example: toolcrib review --revert src/parser.py
    """
    wanted = find_session(location, session)
    shown = location.client.review(location.id, wanted.id, whole=True)
    if sum((keep_all, revert_all, bool(keep or revert))) > 1:
        raise Misconfigured("Give one of --keep-all, --revert-all, and --keep or --revert with paths.")
    if not shown.files:
        print_json(shown) if as_json else typer.echo(NOTHING)
        return
    if keep_all or revert_all:
        done = location.client.decide_review(location.id, shown, everything="keep" if keep_all else "revert")
    elif keep or revert:
        choices = ReviewChoices(shown)
        for paths, choice in ((keep or (), "keep"), (revert or (), "revert")):
            for path in paths:
                choices.mark(_named(shown, path), "keep" if choice == "keep" else "revert")
        done = location.client.decide_review(location.id, shown, choices.decisions())
    elif as_json or not sys.stdin.isatty():
        print_json(shown) if as_json else print_lines(review_lines(shown))
        return
    else:
        ask_review(location, shown, _at_terminal)
        return
    print_json(done) if as_json else print_lines(decided_lines(done))
    raise typer.Exit(1 if done.conflicts else 0)


@dataclass
class ReviewChoices:
    """What a person has chosen so far for the files and hunks of a review."""

    shown: ReviewOut
    files: dict[str, Choice] = field(default_factory=dict)
    # Of files that are not reverted as a whole.
    hunks: dict[str, set[str]] = field(default_factory=dict)

    def mark(self, file: ReviewFileOut, choice: Choice, hunk: ReviewHunkOut | None = None) -> None:
        """Keep or revert a file, or one hunk of it; its other hunks are kept unless they are marked too."""
        if hunk is None:
            self.files[file.path] = choice
            self.hunks.pop(file.path, None)
            return
        chosen = (
            {one.id for one in file.hunks if one.author != "others"}
            if self.is_whole(file)
            else self.hunks.get(file.path, set())
        )
        chosen = chosen | {hunk.id} if choice == "revert" else chosen - {hunk.id}
        self.hunks[file.path] = chosen
        self.files[file.path] = "revert" if chosen else "keep"

    def is_whole(self, file: ReviewFileOut) -> bool:
        """Returns whether the file is reverted as a whole."""
        return self.files.get(file.path) == "revert" and file.path not in self.hunks

    def of(self, file: ReviewFileOut, hunk: ReviewHunkOut | None = None) -> Choice | None:
        """Returns what is chosen for a file or a hunk; None if nothing is."""
        choice = self.files.get(file.path)
        if hunk is None or choice != "revert" or file.path not in self.hunks:
            return choice
        return "revert" if hunk.id in self.hunks[file.path] else "keep"

    def decisions(self) -> list[FileDecisionIn]:
        """Returns the decisions to send. Files without a choice stay open."""
        return [
            FileDecisionIn(
                path=one.path, version=one.version, decision=choice, hunks=sorted(self.hunks.get(one.path, ()))
            )
            if choice == "revert"
            else FileDecisionIn(path=one.path, version=one.version, decision=choice)
            for one in self.shown.files
            if (choice := self.files.get(one.path)) is not None
        ]


def ask_review(location: WorkspaceLocation, shown: ReviewOut, read: Callable[[str], str]) -> None:
    """Asks about each file, and sends the decisions at the end."""
    choices = ReviewChoices(shown)
    print_lines([review_summary(shown), Text()])
    for file in shown.files:
        print_lines(file_lines(file))
        match _asked(read, "Keep this file?", "krshq"):
            case "k":
                choices.mark(file, "keep")
            case "r":
                choices.mark(file, "revert")
            case "h":
                _ask_hunks(choices, file, read)
            case "q":
                break
    if not (decisions := choices.decisions()):
        typer.echo("Nothing was decided. The review stays open.")
        return
    print_lines(decided_lines(location.client.decide_review(location.id, shown, decisions)))


def _at_terminal(prompt: str) -> str:
    """Reads a line. The end of the input stops the review without a decision."""
    try:
        return input(prompt)
    except EOFError:
        raise Misconfigured("Input ended, so nothing was decided. The review stays open.") from None


def _ask_hunks(choices: ReviewChoices, file: ReviewFileOut, read: Callable[[str], str]) -> None:
    choices.mark(file, "keep")
    for hunk in file.hunks:
        if hunk.author != "others":
            print_lines(hunk_lines(hunk))
            choices.mark(file, "revert" if _asked(read, "Keep this hunk?", "kr") == "r" else "keep", hunk)


def _asked(read: Callable[[str], str], question: str, keys: str) -> str:
    while True:
        key = read(f"{question} [{'/'.join(keys)}] ").strip().lower()[:1]
        if key and key in keys:
            return key
        typer.echo(_HELP)


def _named(shown: ReviewOut, path: str) -> ReviewFileOut:
    for one in shown.files:
        if one.path.lstrip("/") == path.lstrip("/").removeprefix("./"):
            return one
    raise NotFound(f"{one_line(path, 200)} has no changes that wait for a review. `toolcrib review` lists them.")


def review_lines(shown: ReviewOut) -> list[Line]:
    """Formats the whole review."""
    return [review_summary(shown), *(line for file in shown.files for line in (Text(), *file_lines(file)))]


def review_summary(shown: ReviewOut) -> Text:
    """Formats how much changed, in one line."""
    files = "1 file" if shown.total == 1 else f"{shown.total:,} files"
    uncounted = shown.total - sum(one.flaw is None for one in shown.files)
    without = f", without {uncounted:,} of them" if uncounted else ""
    return Text.assemble(
        (f"{files} changed (", "bold"),
        (f"+{shown.added}", "green"),
        " ",
        (f"-{shown.removed}", "red"),
        (f"{without})", "bold"),
    )


def file_lines(file: ReviewFileOut) -> list[Line]:
    """Formats one file: its head, and its hunks."""
    return [file_head(file), *(line for hunk in file.hunks for line in hunk_lines(hunk)), *inside_lines(file)]


def inside_lines(file: ReviewFileOut) -> list[Line]:
    """Formats the files of a git directory that may run code."""
    lines: list[Line] = []
    for one in file.inside:
        note = f" ({one_line(one.note, 200)})" if one.note else ""
        lines += [Text(f"{one.change}: {one_line(one.path, 200)}{note}", style="yellow")]
        lines += shown_diff(one.diff) if one.diff else []
    return lines


def file_head(file: ReviewFileOut) -> Text:
    text = Text.assemble((f"{file.change} ", "bold"), one_line(file.path, 1_000))
    if file.from_path:
        text.append(f" (from {one_line(file.from_path, 200)})")
    if file.mode:
        text.append(f" (mode {file.mode[0]} to {file.mode[1]})")
    if not file.hunks and file.added is None and file.flaw is None:
        text.append(_sides(file), style="dim")
    if file.added is not None:
        text.append(f" +{file.added}", style="green")
        text.append(f" -{file.removed}", style="red")
    if file.flaw:
        text.append(f"  not shown: {one_line(file.flaw, 300)}", style="red")
    if file.note:
        text.append(f"  {one_line(file.note, 300)}", style="dim")
    if file.changed_by_others:
        text.append("  someone else changed it too", style="yellow")
    return text


def _sides(file: ReviewFileOut) -> str:
    """Formats size and hash of a content that has no lines."""
    sides = [one for one in (file.before, file.after) if one is not None]
    sizes = " to ".join(f"{one.size:,} bytes" for one in sides)
    known = file.after.sha256 if file.after else None
    return f" ({sizes}{f', sha256 {known}' if known else ''})" if sides else ""


def hunk_lines(hunk: ReviewHunkOut) -> list[HangingLine]:
    """Formats the lines of a hunk. Those of others are marked, because they are not reverted."""
    lines = shown_diff(hunk.diff)
    if hunk.author != "agent":
        whose = "not the agent's change" if hunk.author == "others" else "someone else changed the same lines"
        lines[0].text.append(f"  {whose}", style="yellow")
    return lines


def decided_lines(done: ReviewDecisionOut) -> list[Text]:
    """Formats what a decision did."""
    lines = [Text(f"  kept: {one_line(path, 200)}") for path in done.kept]
    for one in done.reverted:
        part = f" ({one.hunks} of {one.of} hunks)" if one.hunks is not None else ""
        lines.append(Text(f"  reverted: {one_line(one.path, 200)}{part}"))
    lines += [
        Text(f"  skipped: {one_line(one.path, 200)} ({one_line(one.reason, 200)})", style="yellow")
        for one in done.conflicts
    ]
    left = f" {done.open:,} still open." if done.open else ""
    return [*lines, Text(f"Reviewed. The agent is told with your next message.{left}"), take_back_line(done)]


def take_back_line(done: ReviewDecisionOut) -> Text:
    """Says how to take a decision back: it returns to the review, also what was kept."""
    return Text(f"Take it back with: toolcrib undo --call {done.call_id}", style="dim")


def decided_event(payload: Mapping[str, Any]) -> str:
    """Formats the event of a decision, or of its undo, in one line."""
    if payload.get("state") == "reopened":
        who = one_line(payload.get("decidedBy") or "Someone", 60)
        return f"{who} took a review decision back; open again: {_paths(payload.get('reopened') or ())}."
    found = {name: _paths(payload.get(name) or ()) for name in ("kept", "reverted", "edited")}
    parts = [f"{name} {paths}" for name, paths in found.items() if paths]
    return f"{one_line(payload.get('decidedBy') or 'Someone', 60)} reviewed: {'; '.join(parts) or 'nothing'}."


def _paths(found: Sequence[Any]) -> str:
    names = [one_line(one["path"] if isinstance(one, Mapping) else one, 80) for one in found]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
