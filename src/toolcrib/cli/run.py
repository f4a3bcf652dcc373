"""``toolcrib run``: one prompt, answered."""

import sys
from typing import Annotated

import typer

from toolcrib.cli.deciding import Absent, Decider, NobodyThere, somebody
from toolcrib.cli.narrating import Narrator
from toolcrib.cli.place import HERE, DirectoryOption, ServerOption, WorkspaceOption, open_place
from toolcrib.cli.warming import warm_provider
from toolcrib.client import NoAnswer, Run
from toolcrib.domain.agents import Trust
from toolcrib.domain.errors import Misconfigured
from toolcrib.library.conversing import Conversation, is_end
from toolcrib.library.staff import chosen_agent

# How a run ended, as a script is told.
STATUS = {"done": 0, "failed": 1, "turn-limit": 3, "budget": 3, "deadline": 3, "violation": 4, "cancelled": 130}
NEEDS_A_PERSON = 5
TAKEN_OVER = "The terminal that served this directory has ended. Going on here."

AgentOption = Annotated[str | None, typer.Option("--agent", "-a", help="Who answers; by default the default agent.")]
TrustOption = Annotated[Trust | None, typer.Option(help="How often you are asked; by default as the agent says.")]


def run(
    prompt: Annotated[str, typer.Argument(help="What you want. A dash reads it from standard input.")],
    agent: AgentOption = None,
    trust: TrustOption = None,
    approve: Annotated[
        Absent | None, typer.Option(help="What waits for a person: ask nobody, or wait for `toolcrib approve`.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Begin in plan mode: look, and propose.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Every event as a line of JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the answer.")] = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Ask an agent for one thing and see it done.

    You are asked before it changes something, with the diff. Without a terminal, such calls are denied.
    Ends with 0 done, 1 failed, 3 stopped at a limit, 4 out of bounds, 5 needs a person, 130 stopped by you.

    Example: toolcrib run "Add a test for the parser"
    """
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise Misconfigured('There is nothing to do. Say what: toolcrib run "…"')
    if server is None:
        # While the database starts: its process does the work then, not ours.
        warm_provider()
    narrator = Narrator(quiet=quiet or as_json)
    read = None if approve is not None or as_json or prompt == "-" else somebody()
    conversation, begun = None, None
    while True:
        with open_place(directory, server=server, workspace=workspace) as place:
            if conversation is None:
                hired = chosen_agent(place, agent)
                mode = "plan" if plan else "build"
                session = place.client.create_session(place.id, agent_id=hired.id, mode=mode, trust=trust)
                conversation = Conversation(place, session)
            conversation = conversation.moved(place)
            decider = Decider(place, narrator, read=read, absent=approve or Absent.NEVER)
            try:
                begun = begun or conversation.send(text)
                raise typer.Exit(followed(conversation, begun, narrator, decider, as_json=as_json))
            except NoAnswer:
                if not place.served_elsewhere:
                    raise
                narrator.aside(TAKEN_OVER)


def followed(
    conversation: Conversation, run: Run, narrator: Narrator, decider: Decider, *, as_json: bool = False
) -> int:
    """Tells what happens until the run has ended, and has decided what waits; the status to end with."""
    status, stopped = 1, False
    while True:
        try:
            for told in conversation.follow(run):
                if as_json:
                    typer.echo(told.model_dump_json(exclude_none=True))
                else:
                    narrator.tell(told)
                if is_end(told, run):
                    status = STATUS.get(str(told.payload.get("ending")), 1)
                else:
                    decider.decide(told)
            return status
        except NobodyThere:
            narrator.aside(
                "The agent asks something, and nobody can answer here. Run it in a terminal, or add "
                "--approve wait and answer with `toolcrib answer`."
            )
            conversation.stop(run)
            return NEEDS_A_PERSON
        except KeyboardInterrupt:
            if stopped:
                raise
            stopped = True
            narrator.aside("Stopping …")
            conversation.stop(run)
