"""Runs every fenced block of the documentation, in the order of its page."""

import re
import shlex

import pytest

from tests.docs.blocks import blocks_of, pages
from tests.docs.docs_server import Stage
from tests.docs.page_runner import NOT_RUN, RUN, SHOWN, read_as_command_line, run_page

PAGES = pages()
# Examples of the help texts. Their ids and files do not exist, so they are only parsed as the command line would.
REFERENCE = "docs/reference/cli.md"
# Run by tests/docs/test_clients.py.
CLIENTS = "docs/tutorials/clients.md"
# Pages for a reader who has a server: they run one after the other, beside the server of the team server's tutorial.
WITH_A_SERVER = (
    "docs/operations/sizing.md",
    "docs/reference/http.md",
    "docs/operations/troubleshooting.md",
    "docs/operations/upgrade.md",
)
# A page that begins where another one ends.
CONTINUES = {"docs/operations/proxy.md": "docs/operations/install.md"}

# Pages that a person follows for an hour. The gate runs the README, the quickstart and the shorter ones.
LONG = (
    "docs/concepts/cost.md",
    "docs/operations/backup.md",
    "docs/operations/install.md",
    "docs/operations/proxy.md",
    "docs/operations/running.md",
    "docs/reference/headless.md",
    "docs/tutorials/laptop.md",
    "docs/tutorials/team-server.md",
)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long) if page in LONG else page
        for page in PAGES
        if page not in (REFERENCE, CLIENTS, *WITH_A_SERVER)
    ],
)
def test_the_blocks_of_a_page_run_in_order(page: str, stage: Stage) -> None:
    if page in CONTINUES:
        run_page(CONTINUES[page], stage)
    run_page(page, stage)


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_A_SERVER)
def test_the_blocks_of_a_page_run_beside_a_server(page: str, team_server: Stage) -> None:
    run_page(page, team_server)


def test_the_examples_of_the_reference_can_be_parsed() -> None:
    for block in blocks_of(REFERENCE):
        assert block.language == "bash"
        for part in re.split(r"&&|\|\||\$\(|[|)>]", block.body):
            words = shlex.split(part)
            if "toolcrib" in words:
                read_as_command_line(words[words.index("toolcrib") :])


def test_no_block_is_skipped_without_a_current_reason() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]

    unknown = [str(block) for block in blocks if block.language not in (SHOWN, *RUN)]
    stale = set(NOT_RUN) - {(block.page, block.first_line) for block in blocks}
    assert unknown == [], "Say what language they are in; `text` is for what cannot be run."
    assert stale == set(), "These are not there any more."
    assert all(reason.strip() for reason in NOT_RUN.values())


def test_pages_hide_no_commands_in_text_blocks() -> None:
    hidden = [
        str(block)
        for page in PAGES
        for block in blocks_of(page)
        if block.language == SHOWN and re.search(r"^\s*(\$ |toolcrib |pip |import |from )", block.body, re.MULTILINE)
    ]
    assert hidden == []
