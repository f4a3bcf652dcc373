"""``ask_user`` as seed 004 describes it, and the route that answers a question."""

import json
from typing import Any

import psycopg
import pytest

from tests.acceptance.pending_approvals import ended, events_of, hire, session_of
from tests.acceptance.serving import Serving
from tests.acceptance.shapes import A_UUID, Says, refused
from tests.acceptance.workspace import Someone, Workspace

FRAMEWORKS = ["Jest", "Vitest", "Mocha"]
BUTTONS = [{"label": name, "value": name} for name in FRAMEWORKS]
SCHEMA: dict[str, Any] = {"type": "string", "enum": FRAMEWORKS}
QUESTION: dict[str, Any] = {
    "name": "framework",
    "question": "Which testing framework should I use?",
    "schema": json.dumps(SCHEMA),
    "buttons": BUTTONS,
}


def ask(workspace: Workspace, *questions: dict[str, Any]) -> str:
    return str(workspace.result("ask_user", questions=list(questions or (QUESTION,)))["question_id"])


def answer(workspace: Workspace, question_id: str, answers: Any, **more: Any) -> Any:
    return workspace.post(f"/paused-calls/{question_id}/answers", {"answers": answers} | more)


def test_the_example_of_the_seed_gets_the_documented_answer(workspace: Workspace) -> None:
    result = workspace.result("ask_user", questions=[QUESTION])

    assert result == {
        "status": "question_pending",
        "question_id": A_UUID,
        "questions": [QUESTION | {"schema": SCHEMA}],
    }


def test_an_answer_ends_the_call_and_becomes_its_result(workspace: Workspace, ada: Someone) -> None:
    agent = hire(workspace)
    session = session_of(workspace, agent)
    body = {"tool": "ask_user", "args": {"questions": [QUESTION]}, "session_id": session}
    asked = agent.workspace.post("/tools", body).json()["result"]
    [waiting] = workspace.get("/paused-calls").json()["items"]
    assert (waiting["id"], waiting["state"]) == (asked["question_id"], "pending")

    result = answer(workspace, asked["question_id"], {"framework": "Vitest"}, answered_with_button=["framework"]).json()

    assert (result["state"], result["answers"], result["answered_with_button"]) == (
        "answered",
        {"framework": "Vitest"},
        ["framework"],
    )
    assert result["decided_by"] == ada.id
    call = ended(agent.workspace, result["call_id"])
    assert (call["state"], call["result"]) == ("done", {"framework": "Vitest"})
    assert workspace.get("/paused-calls").json()["items"] == []
    assert [kind for kind, _ in events_of(workspace, session)] == [
        "tool-start",
        "question",
        "pause-ended",
        "tool-result",
    ]


def test_a_question_is_answered_once(workspace: Workspace) -> None:
    question = ask(workspace)
    answer(workspace, question, {"framework": "Jest"})

    second = answer(workspace, question, {"framework": "Mocha"})

    refused(second, 409, "CONFLICT", Says("Already answered by ada@example.com"))


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "enum": ["Yes", "No", "Cancel"]}, "Yes", "Maybe"),
        ({"type": "string", "pattern": "^[a-z0-9]+$", "minLength": 3}, "abc1", "A"),
        ({"type": "number", "minimum": 1, "maximum": 100}, 42, 101),
        (
            {"type": "array", "items": {"type": "string", "enum": ["A", "B", "C"]}, "minItems": 1},
            ["A", "C"],
            [],
        ),
        ({"type": "boolean"}, False, "false"),
        ({}, {"any": "thing"}, None),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_answers_must_match_the_schema(
    workspace: Workspace, schema: Any, good: Any, bad: Any, *, as_text: bool
) -> None:
    question = ask(workspace, {"name": "x", "question": "?", "schema": json.dumps(schema) if as_text else schema})

    if schema:
        refused_ = answer(workspace, question, {"x": bad})
        assert refused_.status_code == 400
        assert list(refused_.json()["fields"]) == ["answers.x"]
    assert answer(workspace, question, {"x": good}).json()["answers"] == {"x": good}


def test_one_call_asks_one_to_four_questions(workspace: Workspace) -> None:
    four = [{"name": f"n{n}", "question": "?", "schema": {"type": "integer"}} for n in range(5)]
    question = ask(workspace, *four[:4])

    missing = answer(workspace, question, {"n0": 0, "n1": "one", "other": 1})

    assert missing.status_code == 400
    assert set(missing.json()["fields"]) == {"answers.n1", "answers.n2", "answers.n3", "answers.other"}
    assert answer(workspace, question, {f"n{n}": n for n in range(4)}).status_code == 200
    for wrong in ([], four):
        assert workspace.post("/tools", {"tool": "ask_user", "args": {"questions": wrong}}).status_code == 400


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "questions.0.name"),
        ({"question": ""}, "questions.0.question"),
        ({"schema": "{"}, "questions.0.schema"),
        ({"schema": "[]"}, "questions.0.schema"),
        ({"schema": '{"type": "strong"}'}, "questions.0.schema"),
        ({"schema": '{"$ref": "http://127.0.0.1:1/x"}'}, "questions.0.schema"),
        ({"schema": '{"$ref": "#"}'}, "questions.0.schema"),
        ({"schema": '{"minimum": NaN}'}, "questions.0.schema"),
        ({"schema": {"description": "x" * 20_001}}, "questions.0.schema"),
        ({"schema": {"type": "array"}}, "questions.0.buttons"),
        ({"buttons": [{"label": "x"}]}, "questions.0.buttons.0.value"),
    ],
)
def test_questions_that_cannot_be_answered_are_rejected(
    workspace: Workspace, change: dict[str, Any], field: str
) -> None:
    response = workspace.post("/tools", {"tool": "ask_user", "args": {"questions": [QUESTION | change]}})

    assert response.status_code == 400
    assert [name.split(".function")[0] for name in response.json()["fields"]] == [field]


def test_an_endlessly_recursive_schema_is_rejected(workspace: Workspace) -> None:
    doubling: dict[str, Any] = {"a0": {"type": "integer"}}
    for n in range(1, 40):
        doubling[f"a{n}"] = {"allOf": [{"$ref": f"#/$defs/a{n - 1}"}] * 2}
    bomb = {"$defs": doubling, "$ref": "#/$defs/a39"}

    response = workspace.post(
        "/tools", {"tool": "ask_user", "args": {"questions": [{"name": "x", "question": "?", "schema": bomb}]}}
    )

    assert response.status_code == 400
    assert "references" in response.json()["fields"]["questions.0.schema"]


def test_a_button_is_accepted_even_if_its_value_is_not_in_the_schema(workspace: Workspace) -> None:
    """As in the seed: the schema lists the labels, and the buttons have other values."""
    question = ask(
        workspace,
        {
            "name": "choice",
            "question": "Which approach do you prefer?",
            "schema": '{"type":"string","enum":["Option A","Option B"]}',
            "buttons": [{"label": "Option A", "value": "A"}, {"label": "Option B", "value": "B"}],
        },
    )

    assert answer(workspace, question, {"choice": "C"}, answered_with_button=["choice"]).status_code == 400
    assert answer(workspace, question, {"choice": "A"}, answered_with_button=["other"]).status_code == 400
    assert answer(workspace, question, {"choice": "A"}, answered_with_button=["choice"]).json()[
        "answered_with_button"
    ] == ["choice"]


@pytest.mark.parametrize("bad", ["x" * 100_001, "\x00", ["12345678"] * 12_000])
def test_oversized_and_invalid_answers_are_rejected(workspace: Workspace, bad: Any) -> None:
    question = ask(workspace, {"name": "x", "question": "?", "schema": {}})

    assert answer(workspace, question, {"x": bad}).status_code == 400
    assert workspace.get(f"/paused-calls/{question}").json()["state"] == "pending"


def test_only_members_answer_and_an_agent_sees_its_own(workspace: Workspace, grace: Someone) -> None:
    agent, other = hire(workspace), hire(workspace, name="other")
    asked = agent.workspace.post("/tools", {"tool": "ask_user", "args": {"questions": [QUESTION]}}).json()
    question = asked["result"]["question_id"]

    for who in (agent.workspace, workspace.seen_with(grace.token), workspace.admit(grace, "viewer")):
        refused(answer(who, question, {"framework": "Jest"}), 403, "FORBIDDEN")
    refused(other.workspace.get(f"/paused-calls/{question}"), 404, "NOT_FOUND")
    assert other.workspace.get("/paused-calls").json()["items"] == []
    assert agent.workspace.get(f"/paused-calls/{question}").json()["state"] == "pending"


def test_a_question_without_an_answer_expires(workspace: Workspace, server: Serving) -> None:
    question = ask(workspace)
    with psycopg.connect(server.database_urls.owner) as connection:
        connection.execute("update toolcrib.paused_calls set expires_at = now() where id = %s", (question,))

    refused(answer(workspace, question, {"framework": "Jest"}), 409, "CONFLICT", Says("expired"))
    call = ended(workspace, workspace.get(f"/paused-calls/{question}").json()["call_id"])

    assert (call["state"], call["error"]["code"]) == ("denied", "APPROVAL_EXPIRED")
