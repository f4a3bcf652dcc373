"""Writes docs/compatibility.md from the clients' tables. ``--check`` ends with 1 if it says something else."""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
sys.path.insert(0, str(ROOT))

from tests.clients.criteria import CLIENTS, read_criteria  # noqa: E402 - the tables belong to the tests

HEAD = """# Compatibility

Four kinds of clients existed before Toolcrib, and Toolcrib speaks their protocols. Every promise of the pages that
describe them is a row of a table in `tests/clients`, and a program for each client plays its table against a running
server: `make clients` prints what it saw. This page lists the promises that Toolcrib deliberately keeps differently,
with the [requirement](requirements.md) that decides and the reason. Lines are those of the page that is promised on.

This page is made from the tables by `scripts/compatibility.py`; a test compares them.
"""


def main() -> int:
    page = "\n".join(_lines()) + "\n"
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is not what the tables say. Run: python scripts/compatibility.py")
        return 1
    PAGE.write_text(page)
    return 0


def _lines() -> Iterator[str]:
    yield HEAD.rstrip()
    for client, title in CLIENTS.items():
        criteria = read_criteria(client)
        differing = [one for one in criteria.values() if one.decided_by]
        yield ""
        yield f"## {title}"
        yield ""
        yield f"{len(criteria)} promises, of which {len(differing)} are kept differently."
        yield ""
        yield "| line | promised | decided by | instead |"
        yield "|---|---|---|---|"
        for one in differing:
            what = one.what.replace("|", "\\|")
            yield f"| {one.line} | {what} | {one.decided_by} | {one.reason} |"


if __name__ == "__main__":
    sys.exit(main())
