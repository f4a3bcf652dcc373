"""Check that links between our Markdown pages have a target. Links to other sites are not checked."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"^([a-z][a-z0-9+.-]*:|#)")


def main() -> int:
    pages = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
    broken = [fault for page in pages for fault in broken_links(page)]
    for fault in broken:
        print(fault, file=sys.stderr)
    print(f"{len(pages)} pages, {len(broken)} broken links.")
    return 1 if broken else 0


def broken_links(page: Path) -> Iterator[str]:
    """Yield a message for each link of a page whose target is no file or directory."""
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if ELSEWHERE.match(target):
            continue
        if not (page.parent / target.partition("#")[0]).exists():
            yield f"{page.relative_to(ROOT)}: {target} does not exist"


if __name__ == "__main__":
    sys.exit(main())
