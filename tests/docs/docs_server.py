"""The environment that runs the blocks of a page: a directory with a project, a model, a database, the command.

Replaces what only a reader has: keys, ports, the model, and the name of the database.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.acceptance.local_machine import Model
from tests.acceptance.serving import free_port
from tests.conftest import POOL_SIZE
from tests.databases import DatabaseUrls, admin_url
from tests.fakes.model_server import KEY, Answer, Received
from tests.integration.runs.conftest import says

_SECONDS = 240
PARSER = "def parse(text):\n    # TODO: numbers\n    return text.split()\n"
# The model's response to each prompt. To any other prompt it responds that it is done.
_DEEDS: Mapping[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "Write the review": (("write", {"path": "/REVIEW.md", "content": "# Review\n\nGood.\n"}),),
    "Add a haiku in haiku.md": (
        ("write", {"path": "/haiku.md", "content": "An old silent lock\n", "overwrite": True}),
    ),
    "Add a limerick in limerick.md": (("write", {"path": "/limerick.md", "content": "There was\n"}),),
    "How many of A-113 do we have?": (("lookup_part", {"number": "A-113"}),),
    "Work here before the reader comes": (("write", {"path": "/early.md", "content": "Early.\n"}),),
}


class Obliging(Model):
    """A model that does what the pages ask for."""

    def _scripted(self, request: Received) -> Answer:
        if not request.path.endswith("/chat/completions"):
            return super()._scripted(request)
        last = request.body["messages"][-1]
        deeds = _DEEDS.get(str(last["content"]), ()) if last["role"] == "user" else ()
        return says("", *deeds) if deeds else says("Done.")


@dataclass
class Stage:
    """The environment of one page. Exports, definitions and changes stay for the blocks below."""

    base: Path
    home: Path
    model: Model
    urls: DatabaseUrls
    port: int = field(default_factory=free_port)
    database: str = field(default_factory=lambda: f"toolcrib_docs_{os.getpid()}_{secrets.token_hex(3)}")
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    @property
    def project(self) -> Path:
        return self.base / "my-project"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a reader's shell."""
        server = conninfo_to_dict(admin_url())
        return {
            "HOME": str(self.base),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "PGHOST": str(server["host"]),
            "PGPORT": str(server.get("port", 5432)),
            "PGUSER": str(server.get("user", "postgres")),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{self.model.url}/v1",
            "ANTHROPIC_BASE_URL": self.model.url,
            "TOOLCRIB_HOME": str(self.home),
            "TOOLCRIB_DATABASE_URL": self.urls.app,
            "TOOLCRIB_DATA_DIR": str(self.base / "data"),
            # The servers of other pages use the same database, and may still be stopping.
            "TOOLCRIB_NODE_NAME": f"docs-{self.base.name}",
            "TOOLCRIB_TAKE_OVER_HOMES": "false",
            "TOOLCRIB_POOL_SIZE": str(POOL_SIZE),
            "TOOLCRIB_MODEL": "openai-compatible/gpt-fake",
        }

    def save(self, file: Path, text: str) -> None:
        """Saves a file that a page shows. An agent's definition gets this environment's model."""
        ours = "provider: openai-compatible\nmodel: gpt-fake"
        file.write_text(re.sub(r"^provider: .*\nmodel: .*$", ours, text, flags=re.MULTILINE))

    def bash(self, script: str) -> str:
        """Runs a block of commands and returns its output. A server in the foreground keeps running."""
        state = self.base / "state.sh"
        before = f'. "{state}"\n' if state.exists() else ""
        after = f'\n{{ declare -px; declare -f; echo "cd \'$PWD\'"; }} > "{state}"\n'
        lines = [self._line(line) for line in self._fitted(script).splitlines()]
        whole = "set -aeo pipefail\n" + before + "\n".join(lines) + after
        ran = subprocess.run(
            ["bash", "-c", whole],
            cwd=self.base,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
        assert ran.returncode == 0, f"It ended with {ran.returncode}:\n{ran.stdout}\n{self._log()}"
        return ran.stdout

    def python(self, program: str, name: str) -> None:
        """Executes a block of Python; names that it binds stay."""
        with self.as_reader(), chdir(self.base):
            exec(compile(program, name, "exec"), self.names)

    @contextmanager
    def as_reader(self) -> Iterator[None]:
        """Gives this process a reader's environment, and answers every prompt with yes."""
        with pytest.MonkeyPatch.context() as patched:
            for variable, value in self.environment.items():
                patched.setenv(variable, value)
            patched.setattr("builtins.input", lambda _: "y")
            yield

    def end(self) -> None:
        note = self.base / "server.pid"
        if note.exists():
            os.kill(int(note.read_text()), 15)
        with psycopg.connect(admin_url(), autocommit=True) as connection:
            for name in (self.database, f"{self.database}_restored"):
                drop = sql.SQL("drop database if exists {} with (force)")
                connection.execute(drop.format(sql.Identifier(name)))

    def _fitted(self, script: str) -> str:
        """The script with this environment's key, port and database."""
        server = conninfo_to_dict(admin_url())
        address = f"{server['host']}:{server.get('port', 5432)}/{self.database}"
        fitted = script.replace("_API_KEY=…", f"_API_KEY={KEY}").replace("3000", str(self.port))
        fitted = fitted.replace("127.0.0.1/toolcrib", address)
        return re.sub(r"\bcreatedb toolcrib(?=\b|_)", f"createdb {self.database}", fitted)

    def _line(self, line: str) -> str:
        """Starts a server in the background, and waits until it is healthy before the next line."""
        if not line.startswith("toolcrib serve"):
            return line
        health = f"http://127.0.0.1:{self.port}/health"
        return (
            f'{line} > "{self.base}/server.log" 2>&1 &\n'
            f'echo $! > "{self.base}/server.pid"\n'
            f"curl -s --retry 300 --retry-connrefused --retry-delay 0 --retry-max-time 60 -o /dev/null {health}"
        )

    def _log(self) -> str:
        log = self.base / "server.log"
        return log.read_text() if log.exists() else ""


@contextmanager
def staged(base: Path, home: Path, model: Model, urls: DatabaseUrls) -> Iterator[Stage]:
    """An environment with a small project; its server and its database are removed afterwards."""
    stage = Stage(base, home, model, urls)
    stage.project.mkdir(parents=True)
    (stage.project / "parser.py").write_text(PARSER)
    try:
        yield stage
    finally:
        stage.end()
