"""Redirects a browser to a login link through a private file.

The link must not be an argument of the browser: all users of the machine can see the arguments of a program.
"""

from html import escape
from pathlib import Path
from secrets import token_hex

from toolcrib.local.state_directory import write_private

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}">
<title>Toolcrib</title>
<p><a href="{link}">Continue to Toolcrib</a></p>
</html>
"""


def write_login_page(folder: Path, link: str) -> Path:
    """Writes the page to a private folder. Removes older pages, whose links are used or expired."""
    remove_login_pages(folder)
    page = folder / f"login-{token_hex(8)}.html"
    write_private(page, _PAGE.format(link=escape(link)))
    return page


def remove_login_pages(folder: Path) -> None:
    for page in folder.glob("login-*.html"):
        page.unlink(missing_ok=True)
