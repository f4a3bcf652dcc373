"""``toolcrib doctor``: checks the isolation of the sandbox and suggests fixes."""

import asyncio

import typer

from toolcrib.cli.command_options import JsonOption
from toolcrib.cli.terminal_text import print_json
from toolcrib.sandbox.sandbox import Isolation, Sandbox


def doctor(as_json: JsonOption = False) -> None:
    """Check sandbox isolation. Exits with 1 if agents cannot run commands here.

    Example: toolcrib doctor --json
    """
    found = asyncio.run(Sandbox().probe())
    if as_json:
        print_json(_facts(found))
    else:
        _print(found)
    raise typer.Exit(0 if found.offered else 1)


def _facts(found: Isolation) -> dict[str, object]:
    return {
        "level": found.level,
        "minimum": found.minimum,
        "offered": found.offered,
        "overlay": found.overlay,
        "passed": list(found.held),
        "gaps": [
            {"name": gap.name, "fact": gap.fact, "remedy": gap.remedy, "lowers_the_level": gap.open}
            for gap in found.gaps
        ],
    }


def _print(found: Isolation) -> None:
    state, colour = ("on", typer.colors.GREEN) if found.offered else ("OFF", typer.colors.RED)
    typer.secho(f"Commands are {state}: isolation is '{found.level}', required is '{found.minimum}'.", fg=colour)
    typer.echo(f"Isolated: {', '.join(found.held) or 'nothing'}.")
    for gap in found.gaps:
        typer.secho(f"{'Degraded' if gap.open else 'Fallback'}: {gap.fact}", fg=typer.colors.YELLOW)
        typer.echo(f"  Fix: {gap.remedy}")
