"""Claude behind Anthropic's API with scripted responses, for a person's whole day at the terminal."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance.local_machine import Laptop
from tests.fakes import strictness, wires
from tests.fakes.model_server import KEY, Answer, Received, plain
from tests.fakes.scripted_turns import Scene, SceneCall
from toolcrib.core.ids import new_id
from toolcrib.core.model_stream import FinishReason

# A model whose price is known.
MODEL = "claude-sonnet-5"


@dataclass
class Claude:
    """Anthropic's API with scripted responses, each checked as strictly as the service does."""

    script: list[Scene] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, request: Received) -> Answer:
        if request.path.partition("?")[0].endswith("/v1/models"):
            model = {"type": "model", "id": MODEL, "display_name": "Claude Sonnet 5", "max_input_tokens": 200_000}
            return plain(200, {"data": [model | {"max_tokens": 64_000, "lifecycle": "active"}], "has_more": False})
        reason = strictness.anthropic_refusal(request.body, wires.SIGNATURE)
        assert reason is None, reason
        self.asked.append(request.body)
        return Answer(tuple(wires.anthropic(self.script.pop(0), MODEL)))

    @property
    def last_results(self) -> str:
        """The results of the last calls, as the model received them."""
        blocks = self.asked[-1]["messages"][-1]["content"]
        return "\n".join(json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result")


def turn(text: str = "", *calls: tuple[str, dict[str, Any]]) -> Scene:
    """A response of a usual size."""
    made = tuple(SceneCall(f"call_{new_id()}", name, json.dumps(given)) for name, given in calls)
    reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    return Scene(text=text, calls=made, reason=reason, input_tokens=12_000, output_tokens=400)


def use_claude(own: Laptop, claude: Claude) -> None:
    """Makes this the only model that the person has."""
    own.model.responder = claude
    own.variables = {
        "OPENAI_API_KEY": "",
        "OPENAI_BASE_URL": "",
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": own.model.url,
        "TOOLCRIB_MODEL": f"anthropic/{MODEL}",
    }


def content(project: Path) -> dict[str, bytes]:
    """Every file of the project."""
    return {str(file.relative_to(project)): file.read_bytes() for file in project.rglob("*") if file.is_file()}
