"""Another user of the machine: inspects everything that they can see, again and again, until stopped.

The system's interpreter runs it as a program, with the victim's uid, a folder of the victim's and a report path as
arguments; it imports nothing of ours. It reports after every round, as JSON: what it read and what it connected to.
"""

import json
import os
import socket
import struct
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

_LISTENS = "0A"
_ADDRESSES = ("/", "/api/v1/auth/me", "/api/v1/workspaces", "/api/v1/status", "/v1/models", "/mcp")


def main() -> None:
    victim, folder, report = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    sockets, ports = set(_unix_sockets()), set(_ports(victim))
    seen: dict[str, Any] = {"rounds": 0, "arguments": set(), "environments": set(), "files": set(), "sockets": set()}
    seen |= {"ports": set(), "answers": set()}
    while not report.with_suffix(".stop").exists():
        for process in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                seen["arguments"].add(Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace"))
            with suppress(OSError):
                if os.stat(f"/proc/{process}").st_uid == victim:
                    seen["environments"].add(Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace"))
        seen["files"] |= set(_readable(folder))
        seen["sockets"] |= {name for name in set(_unix_sockets()) - sockets if _is_open(name, victim)}
        for port in set(_ports(victim)) - ports:
            seen["ports"].add(port)
            seen["answers"] |= {(port, address, _status(port, address)) for address in _ADDRESSES}
        seen["rounds"] += 1
        beside = report.with_suffix(".new")
        beside.write_text(json.dumps({name: _plain(value) for name, value in seen.items()}))
        beside.rename(report)


def _readable(folder: Path) -> list[str]:
    return [
        str(Path(parent) / name)
        for parent, _, names in os.walk(folder)
        for name in names
        if os.access(Path(parent) / name, os.R_OK)
    ]


def _unix_sockets() -> list[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return [words[7] for words in (line.split(maxsplit=7) for line in lines) if len(words) > 7]


def _is_open(name: str, victim: int) -> bool:
    """Return whether it accepts us, and belongs to the victim."""
    address = f"\0{name[1:]}" if name.startswith("@") else name
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as probe:
            probe.settimeout(2)
            probe.connect(address)
            _, user, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return bool(user == victim)
    return False


def _ports(victim: int) -> list[int]:
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for facts in (line.split() for line in Path(table).read_text().splitlines()[1:]):
                if facts[3] == _LISTENS and int(facts[7]) == victim:
                    found.append(int(facts[1].rpartition(":")[2], 16))
    return found


def _status(port: int, address: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{address}", timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else value


if __name__ == "__main__":
    main()
