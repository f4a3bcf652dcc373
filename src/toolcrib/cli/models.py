"""``toolcrib models``: lists models, stores API keys of providers and sets the model of an agent."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    JsonOption,
    ServerOption,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.terminal_text import one_line
from toolcrib.core.errors import Misconfigured, ToolcribError
from toolcrib.sdk.default_agent import resolve_agent, set_model
from toolcrib.sdk.default_model import NO_MODEL, named_by_environment, parse_choice, store_environment_keys, usable

app = typer.Typer(invoke_without_command=True)

ProviderArgument = Annotated[str, typer.Argument(help="anthropic, openai, openai-compatible, copilot or ollama.")]


@app.callback()
def listed(
    context: typer.Context,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """List available models. Reads ANTHROPIC_API_KEY, OPENAI_API_KEY and OLLAMA_HOST.

    Example: toolcrib models use ollama/qwen3
    """
    context.obj = {"directory": directory, "server": server, "workspace": workspace}
    if context.invoked_subcommand is not None:
        return
    rows, failures = [], []
    with open_workspace(**context.obj) as location:
        if location.notes is not None:
            store_environment_keys(location.client)
        for provider in (
            usable(location.client)
            if location.notes
            else [one.provider for one in location.client.provider_credentials()]
        ):
            try:
                rows += [{"provider": provider, **one.model_dump()} for one in location.client.models(provider)]
            except ToolcribError as error:
                failures.append(f"{provider}: {one_line(error.message)}")
    if as_json:
        typer.echo(json.dumps({"models": rows, "failures": failures}))
        return
    if not rows and not failures:
        typer.echo(NO_MODEL)
    table = Table("model", "context", "tools", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        window = f"{row['context_window']:,}" if row["context_window"] else "?"
        table.add_row(
            Text(f"{row['provider']}/{one_line(row['id'], 60)}"), window, "yes" if row["supports_tools"] else "no"
        )
    if rows:
        Console().print(table)
    for failure in failures:
        typer.secho(failure, fg="red", err=True)


@app.command()
def login(
    context: typer.Context,
    provider: ProviderArgument,
    base_url: Annotated[str | None, typer.Option("--base-url", help="URL of a server with a compatible API.")] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not check the key with the provider.")] = False,
) -> None:
    """Store your API key for a provider, encrypted. Prompts for it, or reads it from a pipe.

    Example: toolcrib models login anthropic
    """
    secret = _secret(provider)
    with open_workspace(**context.obj) as location:
        location.client.store_access(provider, secret=secret, base_url=base_url, check=not no_check)
    typer.echo(f"Stored. `toolcrib models` lists what {one_line(provider, 40)} offers.")


@app.command()
def logout(context: typer.Context, provider: ProviderArgument) -> None:
    """Delete your API key for a provider.

    Example: toolcrib models logout anthropic
    """
    with open_workspace(**context.obj) as location:
        location.client.remove_access(provider)
    named = [one.provider for one in named_by_environment()]
    typer.echo("Forgotten." + (" The environment still sets one." if provider in named else ""))


@app.command()
def use(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="PROVIDER/MODEL")],
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="The agent; by default the default agent.")] = None,
) -> None:
    """Set the model of an agent, from its next message on.

    Example: toolcrib models use anthropic/claude-sonnet-4-5
    """
    choice = parse_choice(model)
    with open_workspace(**context.obj) as location:
        changed = set_model(location, resolve_agent(location, agent), choice)
    typer.echo(f"{one_line(changed.name, 60)} now uses {one_line(str(choice), 120)}.")


def _secret(provider: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    if provider == "ollama":
        return ""
    secret = str(typer.prompt(f"Key for {one_line(provider, 40)}", hide_input=True)).strip()
    if not secret:
        raise Misconfigured("No key given. Nothing was stored.")
    return secret
