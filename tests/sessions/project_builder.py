"""A small Python project with a git history, as a person has it: work in progress, ignored folders, links, modes."""

import os
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

_FILES = {
    ".gitignore": "__pycache__/\n*.pyc\n.venv/\nnode_modules/\nbuild/\n.cache/\ntrees/\n",
    "README.md": "# Ledger\n\nAdds up what was bought. `python3 -m ledger.cli` prints the sum.\n",
    "pyproject.toml": '[project]\nname = "ledger"\nversion = "0.3.0"\n',
    "Makefile": (
        "all: build/report.txt\n\n"
        "build/report.txt: ledger/*.py\n\tmkdir -p build/parts\n\tpython3 -m ledger.cli > build/report.txt\n"
        "\tcp ledger/*.py build/parts/\n\n"
        "clean:\n\trm -rf build\n\n.PHONY: all clean\n"
    ),
    "ledger/__init__.py": "",
    "ledger/tools.py": (
        'def cents(amount):\n    """Return an amount of money in cents."""\n    return int(amount * 100)\n'
    ),
    "ledger/book.py": (
        "from ledger.tools import cents\n\n\nclass Book:\n    def __init__(self):\n        self.lines = []\n\n"
        "    def buy(self, what, price, count=1):\n        self.lines.append((what, cents(price), count))\n\n"
        "    def total(self):\n        return sum(price * count for _, price, count in self.lines)\n"
    ),
    "ledger/report.py": (
        "from ledger.tools import cents\n\n\ndef row(what, price, count):\n"
        '    return f"{count} {what} at {cents(price) / 100}"\n'
    ),
    "ledger/cli.py": (
        "from ledger.book import Book\nfrom ledger.report import row\n\n\ndef main():\n    book = Book()\n"
        '    book.buy("nails", 0.29, 100)\n    print(row("nails", 0.29, 100))\n    print("sum", book.total())\n\n\n'
        'if __name__ == "__main__":\n    main()\n'
    ),
    "tests/__init__.py": "",
    "tests/test_book.py": (
        "import unittest\n\nfrom ledger.book import Book\nfrom ledger.report import row\n\n\n"
        "class BookTest(unittest.TestCase):\n    def test_total(self):\n        book = Book()\n"
        '        book.buy("nails", 0.29, 100)\n        self.assertEqual(book.total(), 2900)\n\n'
        '    def test_row(self):\n        self.assertEqual(row("nails", 0.5, 2), "2 nails at 0.50")\n'
    ),
    "docs/guide.md": "# Guide\n\nNothing here yet.\n",
    "docs/price list.txt": "nails\t0.29\r\nscrews\t0.31\r\n",
    "docs/größe.txt": "groß\n",
    "old-notes.txt": "Ask about rounding.\n",
    "check": "#!/bin/sh\nexec python3 -m unittest -q\n",
}

_HISTORY = """
git init -q -b main .
git config user.name Ada
git config user.email ada@example.org
chmod 755 check
chmod 640 docs/guide.md
ln -s README.md LIESMICH
ln -s ../ledger docs/code
git add -A
git commit -qm "Add up what was bought"
git tag -a v0.3 -m "Version 0.3"
git checkout -q -b colours
echo 'Colours come later.' >> docs/guide.md
git commit -qam "Mention colours"
git checkout -q main
echo 'MIT' > LICENSE
git add LICENSE
git commit -qm "Choose a licence"
"""

# What is not committed: a staged change, an unstaged one, an untracked file, ignored ones, an empty folder.
_WORK = """
echo 'staged' >> LICENSE
git add LICENSE
echo 'Call them on Monday.' >> old-notes.txt
echo 'x = 1' > wip.py
chmod 600 wip.py
mkdir -p inbox .cache/pages
echo '<p>1' > .cache/pages/1.html
echo '<p>2' > .cache/pages/2.html
ln -s pages/1.html .cache/newest
"""


@dataclass(frozen=True)
class Person:
    """Someone at the same machine with a shell and git, and without settings of this machine."""

    project: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_EDITOR": "true",
            # Submodules from a path are refused by default.
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "protocol.file.allow",
            "GIT_CONFIG_VALUE_0": "always",
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.org",
        }

    def run(self, script: str, *, check: bool = True, at: str | None = None) -> str:
        """Run a script in the project, optionally with another time for git. Returns its output."""
        moment = {} if at is None else {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.project,
            env=self.environment | moment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout


def build_project(base: Path, *, preparation: str = "") -> Person:
    """Create the project and its owner below ``base``. ``preparation`` is what the owner did before the session."""
    project, home = base / "project", base / "home"
    project.mkdir()
    home.mkdir()
    for name, text in _FILES.items():
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        os.chmod(path, 0o644)
    person = Person(project, home)
    # A while ago: reflogs tell seconds.
    person.run(_HISTORY + preparation + _WORK, at="2026-01-05T10:00:00Z")
    return person


def build_wheel(folder: Path, *, version: str) -> None:
    """Write a wheel of a package ``tiny`` with one module, data and a script."""
    about = f"tiny-{version}.dist-info"
    files = {
        "tiny/__init__.py": f'VERSION = "{version}"\n\n\ndef main():\n    print(VERSION)\n',
        "tiny/data/words.txt": "one two three\n" * 50,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": "[console_scripts]\ntiny = tiny:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in (*files.items(), (f"{about}/RECORD", record)):
            wheel.writestr(name, text)
