"""Streamed text is shown as if it had been given whole, wherever the deltas begin and end."""

import random
from collections.abc import Iterator, Sequence
from itertools import takewhile

import pytest
from markdown_it import MarkdownIt
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown, Static

from tests.unit.cli.terminal.test_widgets import StyledStage
from toolcrib.cli.terminal.streamed_markdown import StreamedMarkdown
from toolcrib.cli.terminal.transcript import AgentBlock, Transcript
from toolcrib.cli.terminal.transcript_view import AgentBlockWidget, TranscriptView
from toolcrib.cli.terminal_text import prose
from toolcrib.client import StreamMessage

DOCUMENTS = 12
ANSWERS, PARTS = 40, 4
BLOCKS = (
    "OK",
    "A paragraph with *emphasis*, **weight** and `code`\nthat goes on  \nafter a hard break.",
    "Title\n=====",
    "Not a title\n---",
    "## Head",
    "- one\n- two\n  - nested\n  - again\n- three",
    "- loose\n\n- list\n\n  with a paragraph",
    "- [ ] open\n- [x] done",
    "3. third\n4. fourth\n   ```\n   code in a list\n   ```",
    "```python\ndef first():\n    return 1\n\n\ndef second():\n    return 2\n```",
    "~~~\n# no title\n| no | table |\n~~~",
    "    indented\n\n    code",
    "| a | b |\n|---|:-:|\n| 1 | 2 |\n| `x` | **y** |",
    "| only | head |\n|---|---|",
    "> quoted\n> - list\nlazy",
    "***",
    "[late], [early] and [text](https://example.com/a_b)",
    "[late]: https://example.com/late 'a\ntitle'",
    "[early]: <https://example.com/early>",
    "[late]: https://example.com/other",
    "Generic: Vec<String>, <b>no html</b>\n<div>\n\n&amp; an entity \\* and 5 * 3",
    "日本語の文 👩\u200d👩\u200d👧 ❤\ufe0f e\u0301\u0301",
    "https://example.com/bare and a_b_c",
    "![image](picture.png)",
    "* other\n+ bullets",
    "-",
    "1.",
)


class Stage(App[None]):
    """A text that streams, and what the widget of Textual shows of all of it."""

    def compose(self) -> ComposeResult:
        yield StreamedMarkdown("", classes="spoken")
        yield Markdown(parser_factory=lambda: MarkdownIt("gfm-like", {"html": False}))


def blocks_of(shown: Widget) -> list[tuple[str, str, str]]:
    """What a person sees: each block with the blocks around it, its text, and the styles in it."""
    found = []
    for widget in shown.walk_children():
        around = takewhile(lambda one: one is not shown, widget.ancestors_with_self)
        path = "/".join(type(one).__name__ for one in around if not isinstance(one, Markdown))
        if isinstance(widget, Static):
            content = widget.visual
            assert isinstance(content, Content)
            found.append((path, content.plain, repr(content.spans)))
        elif not isinstance(widget, Markdown):
            found.append((path, str(getattr(widget, "symbol", "")), ""))
    return found


def documents(choose: random.Random, number: int) -> Iterator[str]:
    for _ in range(number):
        blocks = choose.choices(BLOCKS, k=choose.randint(1, 5))
        yield choose.choice(["", "\n", "  "]) + "".join(
            block + choose.choice(["\n", "\n\n", "\n\n", "\n\n\n"]) for block in blocks
        )


def deltas(text: str, choose: random.Random) -> list[str]:
    """Few deltas with boundaries anywhere, more often beside the end of a line, where the parser decides."""
    beside = [at + beside for at, sign in enumerate(text) if sign == "\n" for beside in (0, 1, 2)]
    places = choose.sample(range(1, len(text)), k=min(3, len(text) - 1)) + choose.choices(beside, k=4)
    ends = [*sorted({at for at in places if 0 < at < len(text)}), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


async def test_no_delta_boundary_changes_what_is_shown() -> None:
    choose = random.Random(0)
    app = Stage()
    async with app.run_test(size=(80, 24)):
        growing, whole = app.query_one(StreamedMarkdown), app.query_one("Screen > Markdown", Markdown)
        for document in documents(choose, DOCUMENTS):
            text = ""
            for delta in deltas(document, choose):
                text += delta
                await growing.show_text(text)
                await whole.update(text)
                assert blocks_of(growing) == blocks_of(whole), text


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("part", range(PARTS))
async def test_forty_answers_in_the_chat_are_shown_unchanged_wherever_their_deltas_end(part: int) -> None:
    choose = random.Random(part)
    stage = StyledStage(TranscriptView)
    async with stage.run_test(size=(80, 24)) as pilot:
        view = stage.query_one(TranscriptView)
        await view.mount(whole := Markdown(parser_factory=lambda: MarkdownIt("gfm-like", {"html": False})))
        for number, document in enumerate(documents(choose, ANSWERS // PARTS)):
            transcript, offset = Transcript(), 0
            for delta in deltas(document, choose):
                payload = {"messageId": f"m{number}", "content": delta, "attempt": 0, "offset": offset}
                await view.show(transcript.apply(StreamMessage(type="chat:text-delta", payload=payload)))
                offset += len(delta)
            await pilot.pause()
            await whole.update(prose(document))
            growing = stage.query(AgentBlockWidget).last()
            assert blocks_of(growing) == blocks_of(whole), document


@pytest.mark.parametrize(
    "arriving",
    [
        ("OK\n\n", "Body text", " here."),
        ("```python\nprint(1)\nprint(2)", "\nprint(3)\n```\n", "end"),
        ("- a\n- b", "\n- c"),
        ("| a | b |\n|---|---|\n| 1 |", " 2 |\n| 3 | 4 |\n"),
        ("para one\nline two", " goes on"),
        (" ", "   indented", "\n"),
        ("[a]\n\ntext\n", "\n[a]: https://example.com\n"),
    ],
    ids=["paragraphs", "fence", "list", "table", "lines", "blank first", "link defined last"],
)
async def test_an_answer_in_the_chat_loses_nothing_of_its_first_delta(arriving: Sequence[str]) -> None:
    transcript, stage = Transcript(), StyledStage(TranscriptView)
    async with stage.run_test(size=(80, 24)) as pilot:
        view, offset = stage.query_one(TranscriptView), 0
        for delta in arriving:
            payload = {"messageId": "m", "content": delta, "attempt": 0, "offset": offset}
            await view.show(transcript.apply(StreamMessage(type="chat:text-delta", payload=payload)))
            offset += len(delta)
        await pilot.pause()
        growing = stage.query_one(AgentBlockWidget)
        shown, height = blocks_of(growing), growing.size.height
        await growing.remove()
        await view.mount(whole := AgentBlockWidget(AgentBlock("".join(arriving))))
        await pilot.pause()

        assert shown == blocks_of(whole)
        # The spaces between blocks too.
        assert height == whole.size.height > 0
