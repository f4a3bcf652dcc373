"""Runs the client programs against their own server and prints a report: ``make clients``.

``--each`` prints every criterion; names select clients; ``--not-yet`` prints the list of criteria that are not met
yet, in the format of ``not_yet.txt``.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.clients.client_server import fresh_database, stage_in
from tests.clients.criteria import CLIENTS, State
from tests.clients.programs import PROGRAMS
from tests.databases import DatabaseUrls, url_for
from toolcrib.runs import durable
from toolcrib.storage import migrate


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("clients", nargs="*", choices=[*PROGRAMS, []])
    options.add_argument("--each", action="store_true")
    options.add_argument("--not-yet", action="store_true")
    given = options.parse_args()
    missing = 0
    with fresh_database() as owner, tempfile.TemporaryDirectory() as directory:
        durable.upgrade(owner)
        with stage_in(Path(directory), _urls(owner)) as stage:
            for client in given.clients or PROGRAMS:
                report = PROGRAMS[client](stage)
                counts = report.counts()
                missing += counts[State.NOT_SHOWN]
                if given.not_yet:
                    for one in report.not_shown():
                        _say(f"{client} {one}")
                    continue
                for line in report.lines():
                    if given.each or ": not shown" in line:
                        _say(f"  {line}")
                _say(
                    f"{CLIENTS[client]}: {len(report.criteria)} criteria, {counts[State.SHOWN]} shown, "
                    f"{counts[State.DEVIATING]} deviating by decision, {counts[State.NOT_SHOWN]} not shown"
                )
    return 1 if missing else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _urls(owner: str) -> DatabaseUrls:
    database = owner.rpartition("/")[2]
    return DatabaseUrls(
        owner=owner, app=url_for(database, migrate.APP_ROLE), system=url_for(database, migrate.SYSTEM_ROLE)
    )


if __name__ == "__main__":
    sys.exit(main())
