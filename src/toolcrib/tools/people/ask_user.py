"""Asks a person one to four questions. The call waits as a row until they answer; the answers are its result."""

import json
from typing import Any

from pydantic import Field, field_validator

from toolcrib.core.errors import BadArguments
from toolcrib.core.paused_calls import AnswerButton, Question
from toolcrib.core.tool_calls import ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in, no_effects
from toolcrib.workspace.text.worker_calls import flaw_of_schema

_MOST_BUTTONS = 12


class ButtonArgument(ToolArguments):
    label: str = Field(min_length=1, max_length=200)
    value: str = Field(max_length=1_000)


class QuestionArgument(ToolArguments):
    name: str = Field(min_length=1, max_length=100, description="Variable name for the answer.")
    question: str = Field(min_length=1, max_length=10_000, description="The question as shown to the user.")
    json_schema: dict[str, Any] = Field(
        alias="schema", description="JSON Schema of the answer, as an object or as a JSON string."
    )
    buttons: list[ButtonArgument] = Field(
        default=[], max_length=_MOST_BUTTONS, description="Buttons for the answer. Only if the answer is a string."
    )

    @field_validator("json_schema", mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"The schema is not JSON: {error}") from None


class AskUserArguments(ToolArguments):
    questions: list[QuestionArgument] = Field(min_length=1, max_length=4, description="One to four questions.")


@built_in("workspace", category=ToolCategory.HUMAN, effects=no_effects, checks_membership=False)
async def ask_user(arguments: AskUserArguments, context: ToolContext) -> None:
    """Ask the user for input or a decision, with buttons or a form. Waits for the answer."""
    await _check(arguments)
    context.asked.extend(
        Question(
            asked.name,
            asked.question,
            asked.json_schema,
            tuple(AnswerButton(button.label, button.value) for button in asked.buttons),
        )
        for asked in arguments.questions
    )


async def _check(arguments: AskUserArguments) -> None:
    flaws: dict[str, str] = {}
    names = [asked.name for asked in arguments.questions]
    for number, asked in enumerate(arguments.questions):
        if names.index(asked.name) != number:
            flaws[f"questions.{number}.name"] = (
                f"The name `{asked.name}` is used twice. Give each question its own name."
            )
        if flaw := await flaw_of_schema(asked.json_schema):
            flaws[f"questions.{number}.schema"] = flaw
        elif asked.buttons and asked.json_schema.get("type") not in (None, "string"):
            flaws[f"questions.{number}.buttons"] = "Buttons are for a choice of one string. Leave them out here."
    if flaws:
        raise BadArguments(flaws)
