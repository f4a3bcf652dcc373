"""A tool from one decorated function: its schema, its description, its effects, and its configuration errors."""

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from tests.wait_until import PATIENCE
from toolcrib import Question, ToolContext, ToolFailed, tool
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments, Misconfigured
from toolcrib.core.ids import UserId, WorkspaceId, new_id
from toolcrib.core.paths import AbsolutePath, Mount, MountPath, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.tool import Tool
from toolcrib.tools.tool_registry import ToolRegistry


@tool()
def word_count(path: AbsolutePath, words: list[str], case: bool = True, most: Annotated[int, Field(ge=1)] = 10) -> int:
    """Count how often words stand in a file.

    Longer words first.

    Args:
        path: The file to look in.
        words (list of str): What to count,
            one by one.
        case: Whether case counts.

    Returns:
        case: not an argument.
    """
    return len(words) * most * case * len(path.path)


async def run(made: Tool, arguments: dict[str, Any]) -> Any:
    """Runs the tool's function, with a context that these functions do not use."""
    caller = Caller(WorkspaceId(new_id()), UserId(new_id()))
    nowhere: Any = None
    context = ToolContext(caller, nowhere, nowhere, deadline=0.0, emit=lambda _: None)
    return await made.run(made.parse(arguments), context)


def test_the_name_is_the_functions_and_the_description_its_docstring() -> None:
    assert isinstance(word_count, Tool)
    assert word_count.name == "word_count"
    assert word_count.description == "Count how often words stand in a file.\n\nLonger words first."


def test_the_decorator_needs_no_parentheses() -> None:
    @tool
    def ring(times: int) -> None:
        """Ring the bell."""

    assert (ring.name, ring.danger, ring.idempotent) == ("ring", Danger.DANGEROUS, False)


def test_the_schema_comes_from_signature_and_docstring() -> None:
    schema = word_count.input_schema

    assert schema["required"] == ["path", "words"]
    assert schema["additionalProperties"] is False
    fields = schema["properties"]
    assert fields["path"]["type"] == "string"
    assert fields["path"]["description"] == "The file to look in."
    assert fields["words"] == {
        "type": "array",
        "items": {"type": "string"},
        "title": "Words",
        "description": "What to count, one by one.",
    }
    assert fields["case"]["default"] is True
    assert fields["case"]["description"] == "Whether case counts."
    assert (fields["most"]["minimum"], fields["most"]["default"]) == (1, 10)


async def test_arguments_are_validated_and_passed_by_name() -> None:
    assert await run(word_count, {"path": "/ab", "words": ["x", "y"]}) == 60

    with pytest.raises(BadArguments) as caught:
        word_count.parse({"path": "/a", "words": "x", "most": 0, "speed": 3})
    assert set(caught.value.fields) == {"words", "most", "speed"}


def test_a_new_tool_is_dangerous_and_not_idempotent_by_default() -> None:
    assert (word_count.danger, word_count.idempotent) == (Danger.DANGEROUS, False)
    assert (word_count.toolset, word_count.category) == ("custom", ToolCategory.FILE)

    @tool(name="lookup", toolset="mine", category=ToolCategory.SEARCH, danger=Danger.SAFE, idempotent=True)
    def other() -> None:
        """Look something up."""

    assert (other.name, other.toolset, other.danger, other.idempotent) == ("lookup", "mine", Danger.SAFE, True)


def test_a_dangerous_tool_writes_its_paths_and_a_safe_one_reads_them() -> None:
    @tool()
    def change(source: AbsolutePath, others: list[MountPath], note: str) -> None:
        """Change files."""

    @tool(danger=Danger.SAFE)
    def look(source: AbsolutePath) -> None:
        """Look at a file."""

    a, b = WorkspacePath(Mount.PROJECT, "/a"), WorkspacePath(Mount.CENTRAL, "/b")
    arguments = change.parse({"source": "/a", "others": ["@central/b"], "note": "/c"})
    assert change.effects(arguments) == Effects(reads=(a, b), writes=(a, b))
    assert look.effects(look.parse({"source": "/a"})) == Effects(reads=(a,))


def test_the_author_may_declare_effects() -> None:
    @tool(effects=lambda arguments: Effects(hosts=(arguments.host,)))
    def ping(host: str) -> None:
        """Ping a host."""

    assert ping.effects(ping.parse({"host": "example.org"})) == Effects(hosts=("example.org",))


async def test_the_context_is_filled_in_and_is_no_argument() -> None:
    @tool()
    async def who(greeting: str, surroundings: ToolContext) -> tuple[str, bool]:
        """Say who calls."""
        return greeting, isinstance(surroundings.caller, Caller)

    assert set(who.input_schema["properties"]) == {"greeting"}
    assert await run(who, {"greeting": "hello"}) == ("hello", True)


async def test_an_async_function_runs_on_the_loop_and_a_plain_one_in_a_thread() -> None:
    @tool()
    async def on_loop() -> threading.Thread:
        """Run on the loop."""
        await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, int), PATIENCE)
        return threading.current_thread()

    @tool()
    def beside() -> threading.Thread:
        """Run beside the loop."""
        return threading.current_thread()

    assert await run(on_loop, {}) is threading.current_thread()
    assert await run(beside, {}) is not threading.current_thread()


def test_a_parameter_without_a_type_is_an_error_with_a_remedy() -> None:
    with pytest.raises(Misconfigured, match=r"'unclear' has the parameter 'thing' without a type. Annotate every"):

        @tool()
        def unclear(thing) -> None:  # type: ignore[no-untyped-def]
            """Do something."""


def test_a_function_without_a_docstring_is_an_error_with_a_reason() -> None:
    with pytest.raises(Misconfigured, match="'silent' has no docstring"):

        @tool()
        def silent(thing: str) -> None:
            pass


def test_variadic_parameters_are_rejected() -> None:
    with pytest.raises(Misconfigured, match="'rest'"):

        @tool()
        def many(*rest: str) -> None:
            """Take many."""

    with pytest.raises(Misconfigured, match="'options'"):

        @tool()
        def optioned(**options: str) -> None:
            """Take options."""


def test_a_positional_only_parameter_is_rejected_when_the_tool_is_created() -> None:
    with pytest.raises(Misconfigured, match="'thing'"):

        @tool()
        def positional(thing: str, /) -> None:
            """Take a thing."""


def test_importing_the_package_alone_is_light() -> None:
    program = "import sys, toolcrib; print(*sys.modules); toolcrib.tool; print('toolcrib.tools.tool' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE)

    loaded, then = done.stdout.splitlines()
    assert not {"pydantic", "psycopg", "fastapi", "toolcrib.tools", "toolcrib.sdk"} & set(loaded.split())
    assert then == "True"


def test_the_package_exports_only_names_that_exist() -> None:
    import toolcrib

    with pytest.raises(AttributeError, match="hammer"):
        _ = toolcrib.hammer
    offered = {"tool", "ToolContext", "Toolcrib", "AsyncToolcrib", "ApprovalOut", "RunResult", "RunUnfinished"}
    assert offered <= set(dir(toolcrib))
    assert all(getattr(toolcrib, name) is not None for name in toolcrib._OFFERED)


class Stock(BaseModel):
    number: str
    found_at: datetime | None = None


def test_a_model_as_result_is_its_schema_and_is_encoded_as_json() -> None:
    @tool(danger=Danger.SAFE)
    def stock(number: str) -> Stock:
        """Count parts."""
        return Stock(number=number, found_at=datetime(2026, 1, 2, tzinfo=UTC))

    assert stock.result is Stock
    assert asyncio.run(run(stock, {"number": "A-1"})) == {"number": "A-1", "found_at": "2026-01-02T00:00:00Z"}


def test_a_dialect_encodes_results_itself() -> None:
    @tool(encode_result=lambda found: {"output": f"{found} parts"})
    def stock() -> int:
        """Count parts."""
        return 4

    assert stock.result is None
    assert asyncio.run(run(stock, {})) == {"output": "4 parts"}


class Depot:
    hosts = ("depot.example",)
    is_open = True

    def is_available(self) -> bool:
        return self.is_open


@tool(danger=Danger.SAFE, requires=Depot, hosts=lambda depot: depot.hosts, effects=lambda _: Effects(command="ring"))
async def ring_depot(context: ToolContext) -> str:
    """Ring the depot."""
    return context.resource(Depot).hosts[0]


def test_a_tool_is_available_while_the_service_that_it_requires_is() -> None:
    depot = Depot()
    without, bound = ToolRegistry([ring_depot]), ToolRegistry([ring_depot], resources={Depot: depot})

    assert not without.require("ring_depot").is_available
    assert bound.require("ring_depot").is_available
    depot.is_open = False
    assert not bound.require("ring_depot").is_available


def test_the_hosts_of_a_required_service_are_effects_of_every_call() -> None:
    bound = ToolRegistry([ring_depot], resources={Depot: Depot()}).require("ring_depot")

    assert bound.effects(bound.parse({})) == Effects(command="ring", hosts=("depot.example",))


def test_a_call_without_the_required_service_says_what_is_missing() -> None:
    with pytest.raises(ToolFailed, match="no Depot"):
        asyncio.run(run(ring_depot, {}))


@pytest.mark.parametrize("names", [(), ("a", "a"), ("a", "b", "c", "d", "e")])
def test_a_tool_asks_one_to_four_different_questions(names: tuple[str, ...]) -> None:
    @tool
    async def ask(context: ToolContext) -> None:
        """Ask."""
        context.ask(*(Question(name, "?", {"type": "string"}) for name in names))

    with pytest.raises(ValueError, match="1 to 4 questions"):
        asyncio.run(run(ask, {}))


def test_effects_take_paths_as_text_too() -> None:
    effects = Effects(reads=("/a",), writes=(WorkspacePath(Mount.PROJECT, "/b"), "@central/c"))

    assert effects.reads == (WorkspacePath(Mount.PROJECT, "/a"),)
    assert effects.writes == (WorkspacePath(Mount.PROJECT, "/b"), WorkspacePath(Mount.CENTRAL, "/c"))
