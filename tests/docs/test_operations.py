"""What the operations pages say about nodes names tests that exist and that the gate or a campaign runs."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from scripts.campaigns import CAMPAIGNS
from tests.docs.blocks import ROOT

# Sections in which everything is about nodes; elsewhere, what mentions them.
WHOLE = {
    "running.md": ("## Several nodes", "### Forwarding", "## Stopping and crashes"),
    "backup.md": ("### Without the data directory",),
    "install.md": (),
    "monitoring.md": (),
    "proxy.md": (),
    "sizing.md": (),
    "troubleshooting.md": ("## Nodes",),
    "upgrade.md": (),
}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"^\[\^([\w-]+)\]: (.*(?:\n    .*)*)", re.MULTILINE)
REFERENCE = re.compile(r"\[\^([\w-]+)\]")
NAMED = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
ITEM = re.compile(r"^(?=- |\d+\. )", re.MULTILINE)
NODES = re.compile(r"\bnodes?\b", re.IGNORECASE)


def text_of(page: str) -> str:
    return (ROOT / "docs" / "operations" / page).read_text(encoding="utf-8")


def notes_of(page: str) -> dict[str, str]:
    return dict(NOTE.findall(text_of(page)))


def paragraphs(page: str) -> Iterator[tuple[str, str]]:
    """The paragraphs and list items of a page, each with the heading of its section."""
    heading = ""
    for part in re.split(r"\n{2,}", NOTE.sub("", FENCED.sub("", text_of(page)))):
        if part.startswith("#"):
            heading = part.strip()
        elif part.strip():
            yield from ((heading, one.strip()) for one in ITEM.split(part) if one.strip())


@pytest.mark.parametrize("page", WHOLE)
def test_what_is_said_about_nodes_names_a_test(page: str) -> None:
    said = list(paragraphs(page))
    notes = notes_of(page)

    assert set(WHOLE[page]) <= {heading for heading, _ in said}
    about_nodes = [one for heading, one in said if heading in WHOLE[page] or NODES.search(one)]
    assert about_nodes
    named = [NAMED.search("".join(notes[label] for label in REFERENCE.findall(one))) for one in about_nodes]
    assert [one for one, test in zip(about_nodes, named, strict=True) if test is None] == []


@pytest.mark.parametrize("page", WHOLE)
def test_every_note_is_used_and_names_a_test(page: str) -> None:
    used = {label for _, one in paragraphs(page) for label in REFERENCE.findall(one)}

    assert used == set(notes_of(page))
    assert [label for label, note in notes_of(page).items() if not NAMED.search(note)] == []


@pytest.mark.parametrize("page", WHOLE)
def test_every_named_test_exists_and_is_run_by_the_gate_or_a_campaign(page: str) -> None:
    for note in notes_of(page).values():
        where = ""
        for file, name in NAMED.findall(note):
            # A name alone is of the file that was named before it.
            where = file or where
            assert name in markers_by_test(where), f"{where} has no {name}."
            assert is_run(where, markers_by_test(where)[name]), f"Neither the gate nor a campaign runs {where}::{name}."


def test_test_that_nothing_selects_is_noticed() -> None:
    assert is_run("tests/faults/test_nodes.py", frozenset())
    assert is_run("tests/faults/test_start.py", frozenset({"long"}))
    assert not is_run("tests/faults/test_start.py", frozenset({"root"}))
    assert not is_run("tests/faults/test_start.py", frozenset({"real"}))


@cache
def markers_by_test(file: str) -> dict[str, frozenset[str]]:
    """The tests of a file, and the markers of each, with those of the whole file."""
    body = ast.parse((ROOT / file).read_bytes()).body
    of_all = frozenset[str]()
    for one in body:
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark":
            of_all = markers_in(one.value)
    functions = (one for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return {one.name: of_all.union(*map(markers_in, one.decorator_list)) for one in functions}


def markers_in(node: ast.expr) -> frozenset[str]:
    # A single case of a parametrized test may have its own; the others are run without.
    code = "" if ast.unparse(node).startswith("pytest.mark.parametrize") else ast.unparse(node)
    return frozenset(re.findall(r"\bpytest\.mark\.(\w+)", code))


def is_run(file: str, markers: frozenset[str]) -> bool:
    return any(
        expression.evaluate(lambda name, /, **_: name in markers) and any(Path(file).is_relative_to(at) for at in paths)
        for expression, paths in selections()
    )


@cache
def selections() -> list[tuple[Expression, list[str]]]:
    """What the gate and each campaign select: by markers, and below which paths."""
    [gate] = re.findall(r"^GATE := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    campaigns = [campaign.tests for campaign in CAMPAIGNS if campaign.tests is not None]
    return [
        (Expression.compile(gate), ["tests"]),
        *((Expression.compile(tests.marks), list(tests.paths)) for tests in campaigns),
    ]
