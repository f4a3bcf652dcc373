"""Sessions with many changes that wait for a review."""

import io
import tarfile

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire

MODULE = '''"""Prices of part {number}."""

from dataclasses import dataclass

RATE = 0.19


@dataclass
class Price:
    """A price before tax."""

    net: float
    currency: str = "EUR"

    def gross(self) -> float:
        """Return the price with tax."""
        return self.net * (1 + RATE)

    def discounted(self, percent: int) -> float:
        """Return the price with tax after a discount."""
        if percent > 100:
            raise ValueError("More than everything")
        return self.gross() * (100 - percent) / 100


def total(prices: list[Price]) -> float:
    """Return the sum of all prices with tax."""
    return sum(price.gross() for price in prices)


def shown(price: Price) -> str:
    """Return the price as text."""
    return f"{{price.gross():.2f}} {{price.currency}}"
'''
FOLDERS = ("src/billing", "src/billing/rules", "src/shop", "src/shop/cart", "docs", "tests")
GOOD = '    return f"{price.gross():,.2f} {price.currency}"'
BAD = '    return f"{price.net:.2f} {price.currency}"'


def module(number: int) -> str:
    return MODULE.format(number=number)


def path_of(number: int) -> str:
    return f"/{FOLDERS[number % len(FOLDERS)]}/part{number:02}.py"


def changed(number: int) -> str:
    """Two changes far apart: a harmless one at the top, and one in the last function."""
    text = module(number).replace("RATE = 0.19", "RATE = 0.21")
    return text.replace('    return f"{price.gross():.2f} {price.currency}"', GOOD)


def planted(number: int) -> str:
    """The same, but the last function forgets the tax."""
    return changed(number).replace(GOOD, BAD)


def changed_files(workspace: Workspace, model: ModelServer, *, files: int, bad: int) -> str:
    """Let an agent change many files, one of them badly. Return its session, whose changes wait for a review."""
    unpack(workspace, {path_of(number): module(number) for number in range(files)})
    session = begin(workspace, hire(workspace, model, trust="review"), title="Raise the tax rate")
    after = {path_of(number): planted(number) if number == bad else changed(number) for number in range(files)}
    workspace.put_file("/.cache/after.tar", archive(after))
    model.say(
        says("I change the rate everywhere.", ("bash", {"command": "tar -xf .cache/after.tar"})),
        says("The rate is 21 % everywhere."),
    )
    sent = workspace.post(f"/sessions/{session}/messages", {"text": "Raise the tax rate to 21 %"})
    assert sent.status_code == 202, sent.text
    return session


def unpack(workspace: Workspace, files: dict[str, str]) -> None:
    """Create many files by one command of a person."""
    workspace.put_file("/.cache/before.tar", archive(files))
    workspace.result("bash", command="tar -xf .cache/before.tar")


def archive(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path[1:])
            entry.size = len(content.encode())
            tar.addfile(entry, io.BytesIO(content.encode()))
    return packed.getvalue()


def long_diff(lines: int) -> str:
    """A hunk that replaces many lines, each of them in one word."""
    removed, added = ([f"{sign}x{n} = {name}({n}, 'text')\n" for n in range(lines)] for sign, name in ("-f", "+g"))
    return "".join([f"@@ -1,{lines} +1,{lines} @@\n", *removed, *added])
