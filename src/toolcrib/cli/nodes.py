"""``toolcrib nodes``: lists the nodes of an installation, drains and renames them."""

from dataclasses import replace
from typing import Annotated

import typer

from toolcrib.cli.command_options import JsonOption, in_database
from toolcrib.cli.terminal_text import Row, age, print_list
from toolcrib.core.errors import Conflict, NotFound
from toolcrib.runtime.disk_identity import DiskIdentity
from toolcrib.settings import load_settings
from toolcrib.storage.homes import HomeStore, Node

app = typer.Typer(help="List the nodes of an installation, drain or rename them.", no_args_is_help=True)

NodeArgument = Annotated[str, typer.Argument(help="Its name: `toolcrib nodes list` shows them.")]


@app.command("list")
def listed(as_json: JsonOption = False) -> None:
    """List the nodes, and how many workspaces have their files there.

    Example: toolcrib nodes list
    """

    def row(node: Node) -> Row:
        processes, workspaces = f"{node.processes:,}", f"{node.workspaces:,}"
        return node.name, _state(node), age(node.seen_at), processes, workspaces, node.address or "-"

    lease = load_settings().heartbeat_lease_seconds
    found = in_database(lambda database: HomeStore(database).nodes(lease=lease))
    headings = ("node", "state", "last heartbeat", "processes", "workspaces", "internal address")
    print_list(found, headings, row, as_json=as_json, empty="No node has started yet.")


@app.command()
def drain(
    node: NodeArgument,
    undo: Annotated[bool, typer.Option("--undo", help="End the drain: the node gets workspaces again.")] = False,
) -> None:
    """Let a node give its workspaces to other nodes, before you stop it for good.

    Its server must run. Each workspace moves when nothing is at work in it. Ignored files, such as node_modules, do
    not move: they stay on the node's disk, in `aside` in its data directory.

    Example: toolcrib nodes drain node-2
    """
    in_database(lambda database: HomeStore(database).set_draining(node, is_draining=not undo))
    typer.echo(
        f"{node} gets workspaces again."
        if undo
        else f"{node} gives its workspaces away. `toolcrib nodes list` shows how many it still has."
    )


@app.command()
def rename(
    old: Annotated[str, typer.Argument(help="Its name now.")],
    new: Annotated[str, typer.Argument(help="Its name from now on. Also set TOOLCRIB_NODE_NAME, if you use it.")],
) -> None:
    """Give a node another name, with its workspaces and its queue.

    Run it on the node, with the settings of its server, while that is stopped.

    Example: toolcrib nodes rename node-2 node-7
    """
    settings = load_settings()
    disk = DiskIdentity.load(settings.data_dir)
    if disk is None:
        raise NotFound(f"No server has used {settings.data_dir} yet. Set TOOLCRIB_DATA_DIR as the server has it.")
    if disk.node not in (old, new):
        raise Conflict(f"The workspaces in {settings.data_dir} are those of node {disk.node!r}, not of {old!r}.")
    lease = settings.heartbeat_lease_seconds
    in_database(lambda database: HomeStore(database).rename(old, new, disk.disk_id, lease=lease))
    # Last: until then, the same command may be repeated.
    replace(disk, node=new).save(settings.data_dir)
    typer.echo(f"Node {old} is now {new}.")


def _state(node: Node) -> str:
    if not node.is_alive:
        return "silent"
    return "draining" if node.is_draining else "alive"
