"""``toolcrib package``: installs and removes packages of agents, workflows and documents."""

import io
import os
import zipfile
from pathlib import Path
from typing import Annotated

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, group_in_workspace, in_workspace_of_group
from toolcrib.cli.terminal_text import one_line, print_json
from toolcrib.client import PackageOut
from toolcrib.core.errors import BadArguments, NotFound

app = typer.Typer(invoke_without_command=True)

# The limit of the server. Checked here too, so that a wrong folder is not packed for minutes.
_MAX_FILES = 2_000


@app.callback()
@group_in_workspace
def listed(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """Show the installed package. Agents read it at @pkg.

    Example: toolcrib package install demo.zip
    """
    found = location.client.packages(location.id)
    if as_json:
        print_json(found)
        return
    for one in found:
        _show(one)
    if not found:
        typer.echo("No package is installed. `toolcrib package install` installs one.")


@app.command()
@in_workspace_of_group
def install(
    location: WorkspaceLocation,
    path: Annotated[Path, typer.Argument(help="A zip, tar or tar.gz file, or a directory with a package.json.")],
) -> None:
    """Install or update a package; owners only. Its agents ask before dangerous calls.

    Example: toolcrib package install ./demo
    """
    try:
        archive = packed(path) if path.is_dir() else path.read_bytes()
    except OSError as error:
        raise NotFound(f"Cannot read {path}: {error.strerror}.") from None
    made = location.client.install_package(location.id, archive)
    typer.echo("Installed:")
    _show(made)
    for warning in made.warnings:
        typer.secho(f"Warning: {one_line(warning, 300)}", fg="yellow", err=True)


@app.command()
@in_workspace_of_group
def remove(location: WorkspaceLocation, name: Annotated[str, typer.Argument(help="The package's name.")]) -> None:
    """Remove a package and its agents; owners only. Their history stays.

    Example: toolcrib package remove demo
    """
    if name not in [one.name for one in location.client.packages(location.id)]:
        raise NotFound(f"Package {name!r} is not installed.")
    location.client.remove_package(location.id, name)
    typer.echo(f"Removed: {one_line(name, 60)}.")


def packed(folder: Path) -> bytes:
    """Packs the regular files of a folder as a zip, without hidden ones. Rejects symbolic links."""
    archive, count = io.BytesIO(), 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for above, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(name for name in [*folders, *files] if not name.startswith(".")):
                file = Path(above, name)
                if file.is_symlink() or not (file.is_file() or file.is_dir()):
                    raise BadArguments(
                        {"path": f"{file} is not a regular file. A package cannot contain symbolic links."}
                    )
                if file.is_dir():
                    continue
                count += 1
                if count > _MAX_FILES:
                    raise BadArguments(
                        {"path": f"{folder} has more than {_MAX_FILES:,} files, the limit for a package."}
                    )
                # Without dates and modes, which packages do not keep.
                entry = zipfile.ZipInfo(file.relative_to(folder).as_posix())
                opened.writestr(entry, file.read_bytes(), compress_type=zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _show(package: PackageOut) -> None:
    run = ", with a workflow" if package.has_workflow else ""
    typer.echo(f"{package.name} {one_line(package.version, 64)}: {package.files} files, {package.bytes:,} bytes{run}")
    for agent in package.agents:
        typer.echo(f"  {one_line(agent, 100)}")
