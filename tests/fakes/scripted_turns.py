"""The responses of a scripted model: one scene for each question, in every wire format."""

from dataclasses import dataclass, replace

from toolcrib.core.model_stream import FinishReason


@dataclass(frozen=True)
class SceneCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Scene:
    """One response. ``name`` of a call is its name on the wire."""

    text: str = ""
    thinking: str = ""
    calls: tuple[SceneCall, ...] = ()
    reason: FinishReason = FinishReason.STOP
    input_tokens: int = 11
    output_tokens: int = 7


HELLO = Scene(text="Hello there, friend. Grüße aus 東京 🚀.")
THINK = Scene(thinking="Let me think about it.", text="Forty-two.")
TWO_CALLS = Scene(
    text="I shall look.",
    calls=(
        SceneCall("call_one", "fs_read", '{"path": "a.txt"}'),
        SceneCall("call_two", "list_directory", '{"path": "."}'),
    ),
    reason=FinishReason.TOOL_CALLS,
)
THINK_AND_CALL = replace(TWO_CALLS, thinking="Which one? Grüße 🚀")
REFUSED = Scene(text="I will not.", reason=FinishReason.REFUSAL)
NO_ARGUMENTS = Scene(calls=(SceneCall("call_bare", "list_directory", "{}"),), reason=FinishReason.TOOL_CALLS)
AFTER_RESULTS = Scene(text="Both are done.")

# The question that selects each scene.
SCENES = {
    "Say hello.": HELLO,
    "Think first.": THINK,
    "Use two tools.": TWO_CALLS,
    "Think, then use them.": THINK_AND_CALL,
    "Call without arguments.": NO_ARGUMENTS,
}
