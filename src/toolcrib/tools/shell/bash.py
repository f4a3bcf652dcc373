"""Run a shell command in the project as a transaction: all of its effect is kept, or none."""

import re
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import TimedOut, ToolcribError, ToolFailed
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.permissions import host_flaw, permission_for
from toolcrib.runtime.disk_threads import off_loop
from toolcrib.sandbox.command import DEFAULT_SECONDS, CommandResult, HostContact
from toolcrib.sandbox.egress_proxy import NOT_GRANTED, PORTS, PRIVATE_ADDRESS
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.shell import MOST_PATHS, TOOL_NAME, CommandRun, Shell, summarize_effect
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import TextOutput, failed_output

LONGEST_SECONDS: Final = 600.0
# Time for reading a large effect and adding it to the draft, beyond the command's own limit.
_AFTERWARDS: Final = 300.0
_LAST_WORDS: Final = 4_000
_MOST_HOSTS: Final = 50
PRIVATE_HOSTS_SETTING: Final = "TOOLCRIB_ALLOWED_PRIVATE_COMMAND_HOSTS"


def _host(host: str) -> str:
    if flaw := host_flaw(host.lower()):
        raise ValueError(flaw)
    return host.lower()


Host = Annotated[str, Field(max_length=300), AfterValidator(_host)]


class BashArguments(ToolArguments):
    command: str = Field(min_length=1, description="Shell command to execute, with `sh -c` in the session's directory.")
    timeout: int | None = Field(
        default=None, ge=1, description=f"Timeout in seconds (default {DEFAULT_SECONDS:.0f}, at most what is allowed)."
    )
    hosts: tuple[Host, ...] = Field(
        default=(),
        max_length=_MOST_HOSTS,
        description="Hosts that the command contacts, such as `pypi.org`, `*.example.org` or `example.org:8080`. "
        "A person is asked to approve those that are not allowed yet.",
    )


@built_in(
    "studio",
    category=ToolCategory.EXEC,
    danger=Danger.DANGEROUS,
    effects=lambda arguments: Effects(command=arguments.command, hosts=arguments.hosts),
    encode_error=lambda error: _failed(error),
    requires=Shell,
    default=True,
    replannable=False,
    timeout=lambda arguments, caller: _seconds(arguments, caller) + _AFTERWARDS,
)
async def bash(arguments: BashArguments, context: ToolContext) -> TextOutput:
    """Run a shell command in the session's directory, by default the project root.

    The network is closed except for the hosts that you name in `hosts`, which a person may have to approve. Changes to
    files are saved together when the command exits, also with a non-zero exit code; after a timeout, none are saved.
    /central and /state are writable, /pkg is read-only. Processes end with the command.
    """
    seconds = _seconds(arguments, context.caller)
    ran = await context.resource(Shell).run(arguments.command, context, seconds=seconds, hosts=arguments.hosts)
    facts = _facts(ran.result, context.remarks.isolation)
    if ran.result.timed_out:
        why = f"The command timed out after {seconds:.0f} s. Nothing was changed."
        raise _CommandTimedOut("\n".join((why, *_network_notes(ran), *ran.notes)), ran.result, facts)
    if ran.result.stopped:
        why = f"The command was stopped: {ran.result.stopped}. Nothing was changed. Use fewer resources."
        raise _CommandEnded(why, ran.result, facts)
    return await off_loop(context.draft.changes, _result, ran, context.draft.change_set(context.caller), facts)


def _seconds(arguments: BashArguments, caller: Caller) -> float:
    """Return the requested time, limited by what the agent's owner allows."""
    permission = permission_for(caller.agent.rules, TOOL_NAME) if caller.agent else None
    most = permission.timeout if permission and permission.timeout else LONGEST_SECONDS
    return min(arguments.timeout or DEFAULT_SECONDS, most)


class _CommandEnded(ToolFailed):
    """A command that was ended early, with its last output."""

    def __init__(self, message: str, result: CommandResult, facts: dict[str, Any]) -> None:
        super().__init__(message)
        self.last_output = result.output.text[-_LAST_WORDS:]
        self.facts = {"timedOut": result.timed_out, **facts}


class _CommandTimedOut(_CommandEnded, TimedOut):
    code = TimedOut.code


def _result(ran: CommandRun, change_set: ChangeSet, facts: dict[str, Any]) -> TextOutput:
    result = ran.result
    failed = result.exit_code != 0
    effect, unkept = summarize_effect([change_set]), ran.unkept[:MOST_PATHS]
    notes = [f"[exit code {result.exit_code}; its file changes were kept]"] if failed and effect else []
    notes += [f"[skipped: {left_out}]" for left_out in ran.left_out]
    notes += [*_network_notes(ran), *ran.notes]
    metadata = {
        "exitCode": result.exit_code,
        **facts,
        **({"changed": effect} if effect else {}),
        # Ignore rules or its size keep it out of the history; undo moves it to the trash and back.
        **({"untracked": [{"path": path.relative, "bytes": size} for path, size in unkept]} if unkept else {}),
        **({"skipped": list(ran.left_out[:MOST_PATHS])} if ran.left_out else {}),
    }
    output = "\n".join(filter(None, (result.output.text.removesuffix("\n") if notes else result.output.text, *notes)))
    return {"output": output, "metadata": metadata, "is_error": failed}


# How common programs report that a name cannot be resolved or an address cannot be reached.
_NO_NETWORK: Final = re.compile(
    r"could ?n[o']t resolve (?:host|proxy)|name resolution|name or service not known|network is unreachable|"
    r"no such host|getaddrinfo|\bEAI_AGAIN\b|\bENOTFOUND\b|\bENETUNREACH\b|nodename nor servname|"
    r"unable to resolve host|failed to lookup address|dns error|temporary failure resolving",
    re.IGNORECASE,
)


def reports_no_network(text: str) -> bool:
    """Whether a program's output says that a name cannot be resolved or an address cannot be reached."""
    return _NO_NETWORK.search(text) is not None


_HOW_TO_ASK: Final = 'If it needs the network, repeat the call with `hosts`, such as {"hosts": ["pypi.org"]}'


def _network_notes(ran: CommandRun) -> list[str]:
    """Say what the network closed off, and how to ask for it."""
    result = ran.result
    notes = []
    if closed := _refused(result, NOT_GRANTED):
        notes.append(f"[the network is closed for {closed}: {_HOW_TO_ASK}]")
    if private := _refused(result, PRIVATE_ADDRESS):
        notes.append(
            f"[not contacted, because the address is private: {private}. The operator can permit such a host with "
            f"{PRIVATE_HOSTS_SETTING}=host:port]"
        )
    # A program that waits for the network says nothing before it gives up.
    waited = result.timed_out and not ran.hosts
    # The last program of a pipeline may succeed, and the one that needed the network may be silent.
    failed = result.tried_network or (result.exit_code and reports_no_network(result.output.text))
    if waited or (failed and not result.contacted):
        notes.append(f"[the network is closed for this command. {_HOW_TO_ASK}; a person is asked to approve them]")
    return notes


def _refused(result: CommandResult, why: str) -> str:
    """List the hosts that were refused for this reason."""
    found = dict.fromkeys(_address(one) for one in result.contacted if one.refused == why)
    return ", ".join(islice(found, MOST_PATHS))


def _address(contact: HostContact) -> str:
    return contact.host if contact.port in PORTS else f"{contact.host}:{contact.port}"


def _facts(result: CommandResult, isolation: str | None) -> dict[str, Any]:
    return {
        "isolation": isolation,
        "durationMs": round(result.seconds * 1000),
        **({"truncatedBytes": result.dropped} if result.dropped else {}),
        **({"hosts": [_contact(one) for one in result.contacted[:MOST_PATHS]]} if result.contacted else {}),
    }


def _contact(contact: HostContact) -> dict[str, Any]:
    refused = {"refused": contact.refused} if contact.refused else {}
    return {"host": contact.host, "port": contact.port, **refused}


def _failed(error: ToolcribError) -> TextOutput | None:
    result = failed_output(error)
    if result is None or not isinstance(error, _CommandEnded):
        return result
    result["output"] = "\n".join(filter(None, (error.last_output.removesuffix("\n"), result["output"])))
    result["metadata"] |= error.facts
    return result
