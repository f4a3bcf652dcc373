"""``toolcrib models``: lists models, stores API keys of providers and sets the model of an agent."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from toolcrib.cli.command_options import (
    AgentOption,
    JsonOption,
    WorkspaceLocation,
    group_in_workspace,
    in_workspace_of_group,
)
from toolcrib.cli.terminal_text import Row, one_line, print_json, print_table
from toolcrib.client import ModelOut
from toolcrib.core.errors import Misconfigured, NotFound, ToolcribError
from toolcrib.sdk.default_agent import (
    ModelChoice,
    is_keyless,
    named_by_environment,
    no_model,
    parse_choice,
    resolve_agent,
    set_model,
    usable,
)

app = typer.Typer(invoke_without_command=True)

ProviderArgument = Annotated[str, typer.Argument(help="Provider, such as anthropic or ollama.")]


@app.callback()
@group_in_workspace
def listed(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List available models. Reads the keys in the environment, such as ANTHROPIC_API_KEY.

    Example: toolcrib models use ollama/qwen3
    """
    found, failures = available_models(location)
    rows = [{"provider": provider, **one.model_dump()} for provider, one in found]
    if as_json:
        print_json({"models": rows, "failures": failures})
        return
    if not rows and not failures:
        typer.echo(no_model())
    if rows:
        print_table(("model", "context", "tools"), map(_row, rows))
    for failure in failures:
        typer.secho(failure, fg="red", err=True)


def available_models(location: WorkspaceLocation) -> tuple[list[tuple[str, ModelOut]], list[str]]:
    """Returns the models of all providers with credentials, and why providers did not answer."""
    client = location.client
    found: list[tuple[str, ModelOut]] = []
    failures = []
    for provider in usable(client) if location.notes else [one.provider for one in client.provider_credentials()]:
        try:
            found += [(provider, one) for one in client.models(provider)]
        except ToolcribError as error:
            failures.append(f"{provider}: {one_line(error.message)}")
    return found, failures


def _row(model: Mapping[str, Any]) -> Row:
    window = f"{model['context_window']:,}" if model["context_window"] else "?"
    return f"{model['provider']}/{one_line(model['id'], 60)}", window, "yes" if model["supports_tools"] else "no"


@app.command()
@in_workspace_of_group
def login(
    location: WorkspaceLocation,
    provider: ProviderArgument,
    base_url: Annotated[str | None, typer.Option("--base-url", help="URL of a server with a compatible API.")] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not check the key with the provider.")] = False,
) -> None:
    """Store your API key for a provider, encrypted. Prompts for it, or reads it from a pipe.

    Example: toolcrib models login anthropic
    """
    secret = _secret(provider)
    location.client.store_access(provider, secret=secret, base_url=base_url, check=not no_check)
    typer.echo(f"Stored. `toolcrib models` lists what {one_line(provider, 40)} offers.")


@app.command()
@in_workspace_of_group
def logout(location: WorkspaceLocation, provider: ProviderArgument) -> None:
    """Delete your API key for a provider.

    Example: toolcrib models logout anthropic
    """
    location.client.remove_access(provider)
    typer.echo("Deleted." + (" The environment still sets one." if provider in named_by_environment() else ""))


@app.command()
@in_workspace_of_group
def limit(
    location: WorkspaceLocation,
    provider: ProviderArgument,
    at_once: Annotated[int | None, typer.Option(min=1, max=10_000, help="How many requests run at once.")] = None,
    per_minute: Annotated[int | None, typer.Option(min=1, max=10_000, help="How many start within a minute.")] = None,
) -> None:
    """Limit the requests with your API key for a provider; without options, remove the limits.

    Runs that have no room wait, and go on by themselves.

    Example: toolcrib models limit anthropic --at-once 4 --per-minute 50
    """
    location.client.limit_requests(provider, at_once=at_once, per_minute=per_minute)
    limits = [f"{at_once} at once"] if at_once else []
    limits += [f"{per_minute} per minute"] if per_minute else []
    typer.echo(f"Requests to {one_line(provider, 40)}: {', '.join(limits) or 'no limit of yours'}.")


@app.command()
@in_workspace_of_group
def use(
    location: WorkspaceLocation,
    model: Annotated[str, typer.Argument(help="PROVIDER/MODEL")],
    agent: AgentOption = None,
) -> None:
    """Set the model of an agent, from its next message on.

    Example: toolcrib models use anthropic/claude-sonnet-4-5
    """
    choice = parse_model(model)
    changed = set_model(location, resolve_agent(location, agent), choice)
    typer.echo(f"{one_line(changed.name, 60)} now uses {one_line(str(choice), 120)}.")


def parse_model(text: str) -> ModelChoice:
    """Parses ``provider/model``. Raises NotFound with the names of the providers if there is none of this name."""
    from toolcrib.providers.provider_registry import provider_classes

    choice = parse_choice(text)
    if choice.provider not in provider_classes():
        raise NotFound(
            f"There is no provider {one_line(choice.provider, 40)!r}. Providers: {', '.join(provider_classes())}."
        )
    return choice


def _secret(provider: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    if is_keyless(provider):
        return ""
    secret = str(typer.prompt(f"Key for {one_line(provider, 40)}", hide_input=True)).strip()
    if not secret:
        raise Misconfigured("No key given. Nothing was stored.")
    return secret
