"""Generate docs/compatibility.md from the tables of the clients. ``--check`` exits with 1 if the page is outdated."""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
sys.path.insert(0, str(ROOT))

from tests.clients.criteria import CLIENTS, read_criteria  # noqa: E402 - the tables belong to the tests

HEAD = """# Compatibility

Toolcrib implements the protocols of four kinds of existing clients, so they can use it with few changes. Each promise
of their specifications is a row of a table in `tests/clients`. For each client, a program runs its table against a
server; `make clients` prints the results. This page lists the promises that Toolcrib deliberately keeps differently,
and what Toolcrib does instead. Line numbers refer to the specification.

`scripts/compatibility.py` generates this page from the tables, and a test compares them.
"""


def main() -> int:
    page = "\n".join(_lines()) + "\n"
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is outdated. Run: python scripts/compatibility.py")
        return 1
    PAGE.write_text(page)
    return 0


def _lines() -> Iterator[str]:
    yield HEAD.rstrip()
    for client, title in CLIENTS.items():
        criteria = read_criteria(client)
        differing = [one for one in criteria.values() if one.instead]
        yield ""
        yield f"## {title}"
        yield ""
        yield f"{len(criteria)} promises, of which {len(differing)} are kept differently."
        yield ""
        yield "| line | promised | instead |"
        yield "|---|---|---|"
        for one in differing:
            what = one.what.replace("|", "\\|")
            yield f"| {one.line} | {what} | {one.instead} |"


if __name__ == "__main__":
    sys.exit(main())
