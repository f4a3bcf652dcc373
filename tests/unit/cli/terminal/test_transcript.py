"""Events become blocks: growing text, calls that run, wait and end, and pending approvals and questions."""

from decimal import Decimal
from typing import Any

from toolcrib.cli.terminal.transcript import (
    AgentBlock,
    CallBlockState,
    ContextUsage,
    NoticeBlock,
    QueuedMessage,
    ToolCallBlock,
    Transcript,
    UserBlock,
    queued_lines,
)
from toolcrib.client import StreamMessage


def messages(type_: str, seq: int | None = None, **payload: Any) -> StreamMessage:
    return StreamMessage(type=f"chat:{type_}", payload=payload, seq=seq)


def delta(text: str, offset: int, attempt: int = 1) -> StreamMessage:
    return messages("text-delta", messageId="m", content=text, offset=offset, attempt=attempt)


def story_of(*all_told: StreamMessage, now: float | None = None) -> Transcript:
    transcript = Transcript()
    for one in all_told:
        transcript.apply(one, now)
    return transcript


def test_text_grows_in_one_block_and_repeated_deltas_are_ignored() -> None:
    transcript = story_of(delta("I shall", 0), delta("shall wri", 2), delta("te.", 11))

    [block] = transcript.blocks
    assert isinstance(block, AgentBlock)
    assert block.text == "I shall write."


def test_a_retried_message_replaces_the_earlier_text() -> None:
    transcript = story_of(delta("I shall not", 0), delta("I shall", 0, attempt=2))

    assert [block.text for block in transcript.blocks if isinstance(block, AgentBlock)] == ["I shall"]


def test_the_end_of_a_message_has_the_complete_text_and_the_context_usage() -> None:
    end = messages("stream-end", 4, messageId="m", content="Whole.", usage={"contextTokens": 18, "contextWindow": 100})
    transcript = story_of(delta("Who", 0), end)

    assert [block.text for block in transcript.blocks if isinstance(block, AgentBlock)] == ["Whole."]
    assert transcript.usage == ContextUsage(18, 100)
    assert transcript.seen == 4


def test_the_messages_of_a_conversation_that_began_elsewhere_are_blocks_and_start_no_run() -> None:
    transcript = story_of(
        messages("message", 1, messageId="a", runId=None, role="user", content="What is there?"),
        messages("message", 2, messageId="b", runId=None, role="assistant", content="A file."),
    )

    asked, answered = transcript.blocks
    assert isinstance(asked, UserBlock)
    assert isinstance(answered, AgentBlock)
    assert (asked.text, answered.text) == ("What is there?", "A file.")
    assert transcript.run_id is None


def test_the_cost_counts_turns_summaries_and_child_runs() -> None:
    def used(cost: str | None) -> dict[str, Any]:
        return {"inputTokens": 9, "outputTokens": 1, "contextTokens": 10, "cost": cost}

    ended: dict[str, Any] = {"runId": "r", "state": "ended", "endReason": "done", "cost": "3.25", "unpricedTurns": 0}
    transcript = story_of(
        messages("stream-end", messageId="m", runId="r", content="One.", usage=used("0.5")),
        messages("message", messageId="s", runId="r", role="summary", content="Short.", usage=used("0.25")),
    )
    assert transcript.usage.cost == Decimal("0.75")

    # With its child runs.
    transcript.apply(messages("run-state", **ended), None)
    transcript.apply(messages("stream-end", messageId="n", runId="q", content="Two.", usage=used(None)), None)

    assert (transcript.usage.cost, transcript.usage.has_unpriced) == (Decimal("3.25"), True)


def test_an_empty_message_makes_no_block() -> None:
    assert story_of(messages("stream-end", messageId="m", content="", usage={})).blocks == []


def test_a_call_waits_runs_and_ends() -> None:
    transcript, call = Transcript(), ToolCallBlock("none")
    confirm = messages("tool-confirm", toolId="c", toolName="write", pauseId="a", input={"path": "/a"}, changes=[{}])
    states = []
    for one, now in (
        (confirm, 1.0),
        (messages("pause-ended", toolId="c", pauseId="a", approved=True), 2.0),
        (messages("tool-start", toolId="c", toolName="write", input={"path": "/a"}), 3.0),
        (messages("tool-delta", toolId="c", chunk="so", offset=0), 4.0),
        (messages("tool-delta", toolId="c", chunk=" far", offset=2), 4.5),
    ):
        [block] = transcript.apply(one, now)
        assert isinstance(block, ToolCallBlock)
        call = block
        states.append((call.state, bool(transcript.waiting), call.output))
    transcript.apply(messages("tool-result", toolId="c", toolName="write", status="success", result="done"), 5.0)

    assert states == [
        (CallBlockState.WAITING, True, ""),
        (CallBlockState.RUNNING, False, ""),
        (CallBlockState.RUNNING, False, ""),
        (CallBlockState.RUNNING, False, "so"),
        (CallBlockState.RUNNING, False, "so far"),
    ]
    assert (call.state, call.output, call.seconds) == (CallBlockState.DONE, "done", 2.0)
    assert transcript.blocks == [call]


def test_output_that_arrives_before_its_call_is_labelled_with_the_tool() -> None:
    transcript = story_of(
        messages("tool-delta", toolId="c", chunk="On branch main\n", offset=0, attempt=1),
        messages("tool-start", toolId="c", toolName="bash", input={"command": "git status"}),
        messages("question", toolId="q", pauseId="p", questions=[]),
    )

    [call, question] = [block for block in transcript.blocks if isinstance(block, ToolCallBlock)]
    assert (call.tool, call.given, call.output) == ("bash", {"command": "git status"}, "On branch main\n")
    assert question.tool == "ask_user"


def test_the_duration_of_a_replayed_call_can_be_unknown() -> None:
    started = messages("tool-start", toolId="c", toolName="bash", input={"command": "ls"})
    ended = messages("tool-result", toolId="c", toolName="bash", status="error", result="no", metadata={})
    [call] = story_of(started, ended).blocks

    assert isinstance(call, ToolCallBlock)
    assert (call.state, call.seconds) == (CallBlockState.FAILED, None)


def test_a_loaded_call_shows_the_duration_that_the_server_measured() -> None:
    transcript = Transcript()
    transcript.apply(messages("tool-result", toolId="c", toolName="write", status="success", result="", durationMs=120))

    [call] = transcript.blocks
    assert isinstance(call, ToolCallBlock)
    assert call.seconds == 0.12


def test_the_end_of_a_run_clears_pending_requests_and_shows_its_reason() -> None:
    transcript = story_of(
        messages("message", 1, role="user", content="Go on"),
        messages("run-state", 2, runId="r", state="ready"),
        messages("question", 3, pauseId="q", toolId="c", questions=[]),
    )
    before = (transcript.run_id, list(transcript.waiting))
    transcript.apply(messages("run-state", 4, runId="r", state="ended", endReason="cancelled"))

    assert before == ("r", ["q"])
    assert (transcript.run_id, transcript.waiting) == (None, {})
    assert isinstance(transcript.blocks[0], UserBlock)
    assert isinstance(transcript.blocks[-1], NoticeBlock)
    assert transcript.blocks[-1].text == "Cancelled."


def test_a_queued_message_is_listed_and_does_not_replace_the_run_that_can_be_stopped() -> None:
    transcript = story_of(
        messages("message", runId="r1", messageId="r1", role="user", content="Wait"),
        messages("run-state", runId="r1", state="ready"),
        messages("run-state", runId="r2", state="queued", prompt="Then this", held=False),
    )
    assert (transcript.run_id, transcript.queued) == ("r1", {"r2": QueuedMessage("Then this")})

    transcript.apply(messages("run-state", runId="r2", state="queued", prompt="Then this", held=True))
    transcript.apply(messages("run-state", runId="r1", state="ended", endReason="cancelled"))
    assert (transcript.run_id, transcript.held) == (None, ["r2"])
    shown = queued_lines(transcript.queued.values(), width=80).plain
    assert "> Then this  not sent" in shown

    transcript.apply(messages("message", runId="r2", messageId="r2", role="user", content="Then this"))
    transcript.apply(messages("run-state", runId="r2", state="ready"))
    assert (transcript.run_id, transcript.queued) == ("r2", {})


def test_a_queued_message_that_is_cancelled_leaves_the_run_alone() -> None:
    transcript = story_of(
        messages("run-state", runId="r1", state="ready"),
        messages("run-state", runId="r2", state="queued", prompt="Then this", held=False),
        messages("run-state", runId="r2", state="ended", endReason="cancelled"),
    )

    assert (transcript.run_id, transcript.queued, transcript.blocks) == ("r1", {}, [])


def test_leaving_plan_mode_is_detected_and_the_last_plan_is_kept() -> None:
    transcript = Transcript(mode="plan")
    transcript.apply(messages("tool-start", toolId="p", toolName="plan_write", input={"path": "/plans/a.plan"}))
    transcript.apply(messages("tool-start", toolId="e", toolName="exit_plan_mode", input={}))
    transcript.apply(messages("tool-result", toolId="e", toolName="exit_plan_mode", status="success", result=""))

    assert (transcript.mode, transcript.last_plan) == ("build", "/plans/a.plan")


def test_a_run_that_waits_says_for_what_until_it_goes_on() -> None:
    waits = messages("run-state", 1, runId="r", state="waiting", waitsFor="child")
    limited = messages("run-state", 2, runId="r", state="ready", waitsFor="provider", until="2026-01-01T12:03:00+00:00")
    goes_on = messages("stream-start", 3, messageId="m", runId="r", model="m", attempt=1)

    assert story_of(waits).run_wait == "waits for child runs"
    assert str(story_of(limited).run_wait).startswith("waits for the provider until ")
    assert story_of(waits, goes_on).run_wait is None


def test_output_of_the_persons_own_command_grows_in_its_block() -> None:
    transcript = Transcript()
    before_start = transcript.add_own_output("one\n")
    transcript.apply(messages("tool-start", 1, toolId="t", toolName="bash", input={"command": "make"}), 1.0)
    [block] = transcript.blocks
    assert isinstance(block, ToolCallBlock)
    at_start = block.output
    transcript.add_own_output("two\n")
    grown = block.output
    transcript.apply(messages("tool-result", 2, toolId="t", toolName="bash", status="success", result="all"), 2.0)

    assert before_start is None
    assert (at_start, grown, block.output) == ("one\n", "one\ntwo\n", "all")
    assert block.is_own
    assert transcript.add_own_output("next") is None


def test_a_summary_is_a_notice_and_sets_the_size_of_the_context() -> None:
    summary = messages("message", 1, role="summary", content="They spoke.", runId="r", usage={"contextTokens": 7})
    transcript = story_of(summary)

    [block] = transcript.blocks
    assert isinstance(block, NoticeBlock)
    assert "about 7 tokens" in str(block.text)
    assert transcript.usage.tokens == 7


def test_a_compaction_that_ended_before_the_reply_says_so_too_and_one_with_a_summary_does_not() -> None:
    ended = [messages("run-state", n, runId=run, state="ended", endReason="done") for n, run in ((1, "r"), (3, "s"))]
    summary = messages("message", 2, role="summary", content="They spoke.", runId="s")
    transcript = story_of(ended[0], summary, ended[1])

    assert [block.text for block in transcript.compact("r") if isinstance(block, NoticeBlock)] == [
        "The conversation is too short for a summary."
    ]
    assert transcript.compact("s") == []


def test_a_compaction_that_finds_nothing_to_do_says_so() -> None:
    transcript = Transcript()
    transcript.compact("r")
    transcript.apply(messages("run-state", 1, runId="r", state="ended", endReason="done"))

    assert [block.text for block in transcript.blocks if isinstance(block, NoticeBlock)] == [
        "The conversation is too short for a summary."
    ]
