"""The architecture page names files that exist, so that one call can be followed from it to the modules."""

import re

from tests.docs.blocks import ROOT, blocks_of

PAGE = "docs/architecture.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "toolcrib"


def test_every_module_on_the_path_of_a_call_exists() -> None:
    (path,) = [block.body for block in blocks_of(PAGE) if block.body.startswith(" 1  ")]
    modules = re.findall(r"\b[a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py\b", path)

    assert len(modules) > 20
    assert [module for module in modules if not (PACKAGE / module).is_file()] == []
    steps = [int(number) for number in re.findall(r"^ ?(\d+)  ", path, re.MULTILINE)]
    assert steps == list(range(1, len(steps) + 1))


def test_every_file_for_a_change_exists() -> None:
    named = set(re.findall(r"`((?:src|web|tests)/[^`]+)`", TEXT))

    assert len(named) > 25
    assert [one for one in named if "<" not in one and not (ROOT / one).exists()] == []


def test_every_other_module_that_is_named_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", TEXT))

    assert named
    assert [one for one in named if not ((PACKAGE / one).is_file() or (ROOT / one).is_file())] == []
