"""The sessions that are played: what people really do with an agent in a project."""

from pathlib import Path

from tests.sessions.project_builder import build_wheel
from tests.sessions.scenario import PROCESS, Hand, Session, bash, call, edit, say

ROUNDING = {
    "name": "rounding",
    "question": "How is half a cent rounded?",
    "schema": {"type": "string"},
    "buttons": [{"label": "Up", "value": "up"}, {"label": "To even", "value": "even"}],
}

TASK = Session(
    "refactoring in 30 calls",
    (
        say("I look at the project first.", ("ls", {"path": "/", "recursive": True})),
        call("read", path="/README.md"),
        call("read_multiple_files", paths=["/ledger/book.py", "/ledger/report.py", "/ledger/cli.py"]),
        call("grep", pattern=r"cents\("),
        call("glob", pattern="**/*.py"),
        bash("git status --short && git log --oneline | head -5"),
        bash("python3 -m unittest -q", fails=True),
        call("read", path="/ledger/tools.py"),
        say("Cents are cut off.", ("ask_user", {"questions": [ROUNDING]})),
        edit("/ledger/tools.py", "int(amount * 100)", "int(amount * 100 + 0.5)"),
        edit("/ledger/report.py", "{cents(price) / 100}", "{cents(price) / 100:.2f}"),
        edit("/ledger/cli.py", 'print("sum", book.total())', 'print(f"sum {book.total() / 100:.2f}")'),
        bash("python3 -m unittest -q"),
        call("grep", pattern="def total", path_pattern="/ledger/**"),
        edit("/ledger/book.py", "    def total(self):\n", '    def total(self):\n        """In cents."""\n'),
        call(
            "write",
            path="/tests/test_rounding.py",
            content="import unittest\n\nfrom ledger.amounts import cents\n\n\nclass Rounding(unittest.TestCase):\n"
            "    def test_half_a_cent(self):\n        self.assertEqual(cents(0.295), 30)\n",
        ),
        say("The module is about money.", ("mv", {"source": "/ledger/tools.py", "destination": "/ledger/amounts.py"})),
        bash("sed -i 's/ledger.tools/ledger.amounts/' ledger/*.py && python3 -m unittest -q"),
        call("mkdir", path="/docs/decisions"),
        call("write", path="/docs/decisions/rounding.md", content="# Rounding\n\nHalf a cent is rounded up.\n"),
        edit("/README.md", "Adds up what was bought.", "Adds up what was bought, rounded to cents."),
        call("rm", path="/old-notes.txt"),
        bash("chmod 644 wip.py; ln -sf docs/decisions/rounding.md ROUNDING; git diff --stat"),
        bash("python3 -m unittest 2>&1 | tail -3"),
        bash('git add -A && git commit -qm "Round to cents" && git log --oneline | head -3'),
        say("Does it serve?", ("bash", {"command": "python3 -m http.server 8765 >/dev/null 2>&1 & "
            "for i in 1 2 3 4 5 6 7 8 9; do python3 -c 'import urllib.request as u; "
            "print(u.urlopen(\"http://127.0.0.1:8765/README.md\").status)' 2>/dev/null && exit 0; sleep 0.2; done; "
            "exit 1"})),
        call("bash_start", command="python3 -m http.server 8766"),
        bash("python3 -m venv --without-pip .venv && .venv/bin/python -m ledger.cli"),
        bash("mkdir -p node_modules/left && echo 1 > node_modules/left/index.js && git status --short | head"),
        call("read", path="/ledger/amounts.py"),
    ),
    quick=True,
)  # fmt: skip


FIX_AND_TEST = (
    bash("python3 -m unittest -q", fails=True),
    edit("/ledger/tools.py", "int(amount * 100)", "int(amount * 100 + 0.5)"),
    bash("python3 -m unittest -q", fails=True),
    edit("/ledger/report.py", "{cents(price) / 100}", "{cents(price) / 100:.2f}"),
    bash("python3 -m unittest -q"),
)

IN_THE_TREE = (
    Session("test, edit, test", FIX_AND_TEST, quick=True),
    Session(
        "make, edit, make, make clean",
        (
            bash("make && make"),
            edit("/ledger/cli.py", 'row("nails"', 'row("screws"'),
            bash("sleep 0.01; make && cat build/report.txt"),
            bash("make clean && make -s && ls -R build"),
        ),
    ),
    Session(
        "a folder renamed in 200 files",
        (
            bash(
                "mkdir -p gen && for i in $(seq 200); do mkdir -p gen/p$((i % 20)); "
                'printf "from ledger.tools import cents\\nN = $i\\n" > gen/p$((i % 20))/m$i.py; done'
            ),
            call("mv", source="/ledger", destination="/accounts"),
            bash("grep -rl 'ledger' --include=*.py --include=Makefile . | xargs sed -i 's/ledger/accounts/g'"),
            bash("git mv -k docs manual; mv gen/p1 gen/q1; rm -r gen/p2; python3 -m accounts.cli"),
        ),
    ),
    Session(
        "odd names, links, modes, folders",
        (
            bash(
                "mkdir -p 'a b/c' deep/er/est empty/inner; : > 'a b/c/d'; echo 1 > -n; "
                "echo 3 > 'Ωmega ✓.txt'; echo 4 > 'quo\"te'; "
                "ln -s nowhere gone; ln -sfn docs LIESMICH"
            ),
            bash(
                "rm -- -rf; mv 'two  spaces' 'a b/'; chmod 500 locked; "
                "rmdir inbox; ln -sfn ../tests docs/code; chmod 755 README.md"
            ),
            bash("rm -r docs; mkdir docs; echo new > docs/guide.md; chmod 700 docs; rm -r deep"),
            bash("rm LIESMICH; mkdir LIESMICH; echo 1 > LIESMICH/a; rm check; ln -s README.md check"),
        ),
        preparation=(
            "echo dash > ./-rf; echo 1 > 'two  spaces'; echo 2 > \"$(printf 'tab\\there')\"; "
            "echo 3 > \"$(printf 'new\\nline')\"; ln -s nowhere dangling; mkdir -p locked/inner; "
            "echo 4 > locked/inner/f; "
        ),
        quick=True,
    ),
    Session(
        "a file that nobody may read",
        (bash("chmod 000 wip.py"), bash("echo 1 > one.txt"), bash("chmod 600 wip.py")),
    ),
    Session(
        "a large ignored folder",
        (
            bash("mkdir build; cd build; for i in $(seq 1500); do echo $i > f$i.o; done; truncate -s 20M big.bin"),
            bash("cd build && for i in $(seq 1 3 1500); do echo again $i > f$i.o; done; rm f2.o; printf x >> big.bin"),
            bash("rm -rf build && mkdir -p build/out && seq 100000 > build/out/all.txt"),
        ),
    ),
    Session(
        "a failing command in the middle",
        (
            edit("/README.md", "Adds up", "Sums up"),
            bash("echo half > half.txt; sed -i 's/import/imprt/' ledger/cli.py; python3 -m ledger.cli", fails=True),
            bash("cd nowhere", fails=True),
            bash("sed -i 's/imprt/import/' ledger/cli.py && rm half.txt && python3 -m ledger.cli"),
            call("write", path="/docs/done.md", content="Done.\n"),
        ),
        quick=True,
    ),
    Session(
        "a folder deleted and made again",
        (
            bash("rm -r docs .cache"),
            bash("mkdir docs && echo '# New guide' > docs/guide.md && mkdir .cache && echo 1 > .cache/other"),
            call("write", path="/docs/price list.txt", content="nails 0.30\n"),
            bash("rm -rf docs && mkdir -p docs/deeper && echo again > docs/deeper/guide.md"),
        ),
    ),
    Session(
        "only the call in the middle",
        (
            edit("/README.md", "Adds up", "Sums up"),
            bash("sed -i 's/nails/bolts/' ledger/cli.py; mkdir -p build; echo 1 > build/one; mv LICENSE LICENCE"),
            call("write", path="/docs/more.md", content="More.\n"),
            bash("echo 2 > build.txt; echo '# end' >> ledger/book.py"),
        ),
        undone=1,
        quick=True,
    ),
    Session(
        "background server",
        (
            call("write", path="/public/index.html", content="<h1>Sum</h1>\n"),
            call("bash_start", command="echo started > server.log; exec python3 -u -m http.server 8770 -d public"),
            edit("/public/index.html", "Sum", "Total"),
            call("bash_output", process_id=PROCESS, wait=1),
            bash("git status --short"),
            call("bash_stop", process_id=PROCESS),
            bash("git add -A && git commit -qm 'Serve a page'"),
        ),
    ),
)


def _wheels(project: Path) -> None:
    for version in ("1.0.0", "2.0.0"):
        build_wheel(project / "vendor", version=version)


def _npm_packages(project: Path) -> None:
    for version in ("1.0.0", "2.0.0"):
        folder = project / "vendor" / f"tiny-{version}"
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(f'{{"name": "tiny", "version": "{version}", "bin": "run.js"}}\n')
        (folder / "run.js").write_text(f'#!/usr/bin/env node\nconsole.log("{version}")\n')
        for number in range(40 * int(version[0])):
            (folder / f"part{number}.js").write_text(f"module.exports = {number}\n")
    (project / "package.json").write_text('{"name": "ledger", "private": true}\n')


_PIP = "export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1; .venv/bin/python -m pip"
_NPM = "export HOME=/tmp; npm --offline --no-audit --no-fund --silent"

PACKAGES = (
    Session(
        "venv and pip",
        (
            bash("python3 -m venv .venv", timeout=300),
            bash(f"{_PIP} install -q --no-deps vendor/tiny-1.0.0-py3-none-any.whl && .venv/bin/tiny", timeout=300),
            bash(f"{_PIP} uninstall -qy tiny; .venv/bin/tiny", fails=True, timeout=300),
            bash(f"{_PIP} install -q --no-deps vendor/tiny-2.0.0-py3-none-any.whl && .venv/bin/tiny", timeout=300),
            bash(f"{_PIP} freeze > requirements.txt; git add -A; git commit -qm 'Add tiny'", timeout=300),
        ),
        furnish=_wheels,
    ),
    Session(
        "npm install of a packed package",
        (
            bash(f"{_NPM} pack ./vendor/tiny-1.0.0", timeout=300),
            bash(f"{_NPM} install ./tiny-1.0.0.tgz && node_modules/.bin/tiny", timeout=300),
            bash("git status --short && git add -A && git commit -qm 'Add tiny'"),
        ),
        furnish=_npm_packages,
    ),
    Session(
        "npm upgrade",
        (
            bash(f"for v in 1 2; do {_NPM} pack ./vendor/tiny-$v.0.0; done", timeout=300),
            bash(f"{_NPM} install ./tiny-1.0.0.tgz && node_modules/.bin/tiny", timeout=300),
            bash(f"{_NPM} install ./tiny-2.0.0.tgz && node_modules/.bin/tiny", timeout=300),
            bash(f"rm -rf node_modules && {_NPM} ci && node_modules/.bin/tiny", timeout=300),
        ),
        furnish=_npm_packages,
    ),
)

_COMMIT = bash("echo 'RATE = 19' > ledger/tax.py; git add -A && git commit -qm 'Add the tax rate'")

GIT = (
    Session(
        "commit",
        (
            call("write", path="/ledger/tax.py", content="RATE = 19\n"),
            bash('git add -A && git commit -qm "Add the tax rate" && git log --oneline | head -2'),
        ),
        quick=True,
    ),
    Session(
        "branch, merge, rebase, stash",
        (
            bash("git stash -q && git checkout -q -b tax && echo 'RATE = 19' > ledger/tax.py && git add ledger/tax.py"),
            bash("git commit -qm 'Add the tax rate' && git checkout -q main && git merge -q --no-edit colours"),
            bash("git checkout -q tax && git rebase -q main && git checkout -q main && git merge -q tax"),
            bash("git stash pop -q && git branch -d tax && git tag v0.4"),
            bash("git commit -qam 'Work in progress' && git commit -q --amend -m 'Work' && git reset -q --soft HEAD~1"),
        ),
    ),
    Session(
        "clean and reset",
        (
            bash("git clean -fdxq; git status --short"),
            bash("git reset -q --hard HEAD~1; git checkout -q colours; git branch -q -D main; git reflog expire --all"),
            bash("git gc -q --prune=now; git switch -q -c main"),
        ),
    ),
    Session(
        "worktree",
        (
            bash("git worktree add -q trees/fix -b fix"),
            bash("cd trees/fix && echo fixed >> README.md && git commit -qam Fix && git log --oneline | head -2"),
            bash("git merge -q fix && git worktree remove trees/fix && git branch -q -d fix"),
            bash("git worktree add -q trees/again colours"),
        ),
    ),
    Session(
        "submodule",
        (
            bash("cd lib && echo more >> code.py && git commit -qam More && cd .. && git commit -qam Lib"),
            bash("cd lib && git checkout -q -b topic && echo x > x.py && git add x.py"),
        ),
        preparation=(
            "git init -q -b main ../lib; cd ../lib; git config user.name Ada; git config user.email a@example.org; "
            "echo code > code.py; git add .; git commit -qm Lib; cd ../project; git submodule --quiet add ../lib lib; "
            "git commit -qm 'Add lib'; "
        ),
    ),
)

WITH_A_PERSON = (
    Session(
        "the person only looks",
        (_COMMIT, Hand("git status; git log --oneline; git diff HEAD~1 --stat"), bash("git commit -q --amend -m Tax")),
        quick=True,
    ),
    Session(
        "the person commits on top",
        (_COMMIT, Hand("echo mine > mine.txt; git add mine.txt; git commit -qm Mine"), bash("echo 1 > later.txt")),
        stays=("git/./",),
    ),
    Session(
        "the person edits the same file",
        (
            edit("/ledger/tools.py", "int(amount * 100)", "int(amount * 100 + 0.5)"),
            Hand("sed -i '1i # Money' ledger/tools.py; echo 'Mine.' >> docs/guide.md"),
            edit("/ledger/book.py", "def total", "def sum"),
            call("write", path="/docs/more.md", content="More.\n"),
        ),
        stays=("tree/ledger/tools.py",),
        quick=True,
    ),
    Session(
        "the person edits between two edits",
        (
            edit("/ledger/tools.py", "int(amount * 100)", "int(amount * 100 + 0.5)"),
            Hand("sed -i '1i # Money' ledger/tools.py"),
            call("read", path="/ledger/tools.py"),
            edit("/ledger/tools.py", "# Money", "# Money, in cents"),
            bash("sed -i 's/nails/bolts/' ledger/cli.py"),
        ),
        stays=("tree/ledger/tools.py",),
    ),
    Session(
        "the person packs the repository",
        (
            _COMMIT,
            Hand("git gc -q"),
            bash("git checkout -q -b topic; echo 1 > topic.txt; git add .; git commit -qm Topic"),
            Hand("git pack-refs --all; git repack -qad"),
            bash("git checkout -q main; git merge -q topic"),
            Hand("git gc -q"),
        ),
    ),
    Session(
        "the person has an editor open",
        (
            Hand("echo swap > ledger/.book.py.swp"),
            edit("/ledger/book.py", "count=1", "count=2"),
            Hand("cp docs/guide.md docs/guide.md~; echo 'Saved.' > docs/4913; mv docs/4913 docs/guide.md"),
            bash("sed -i 's/nails/bolts/' ledger/cli.py; git stash list"),
            Hand("rm ledger/.book.py.swp; touch ledger/report.py; chmod 755 ledger/report.py"),
            call("write", path="/docs/more.md", content="More.\n"),
        ),
    ),
    Session(
        "the person works on another branch",
        (
            edit("/ledger/book.py", "count=1", "count=2"),
            Hand("git branch theirs colours; git tag mine; git config alias.st status"),
            bash("mkdir -p build; echo 1 > build/x; git tag agents; git branch topic"),
            # A person needs longer than a second: that much, clocks may differ.
            Hand("sleep 1.1; echo 2 > build/theirs; mkdir -p inbox/new; echo hi > inbox/new/mail"),
        ),
        stays=("tree/build",),
    ),
)

SESSIONS = (*IN_THE_TREE, *PACKAGES, *GIT, *WITH_A_PERSON)
