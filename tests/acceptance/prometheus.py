"""A real Prometheus, as Debian packages it, that scrapes one server."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.acceptance.serving import free_port
from tests.wait_until import PATIENCE

_LOOK_EVERY_SECONDS = 0.1
_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: toolcrib
    authorization: {{credentials_file: "{token_file}"}}
    static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    origin: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now."""
        answer = httpx2.get(f"{self.origin}/api/v1/query", params={"query": expression}, trust_env=False).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def value(self, expression: str) -> float:
        """Return the sum of an expression's values; 0 if it has none."""
        return sum(float(series["value"][1]) for series in self.query(expression))

    def wait_for(self, expression: str, is_right: Callable[[float], bool]) -> float:
        """Wait until a scrape has brought the right value."""
        tick = threading.Event()
        for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
            if is_right(found := self.value(expression)):
                return found
            tick.wait(_LOOK_EVERY_SECONDS)
        raise AssertionError(f"{expression} is still {self.value(expression)} after {PATIENCE} s.")


@contextmanager
def prometheus(directory: Path, *, target: str, token: str, rules: Path) -> Iterator[Prometheus]:
    """Start it, wait until it responds, and stop it."""
    directory.mkdir()
    token_file, config, log = (directory / name for name in ("token", "prometheus.yml", "prometheus.log"))
    token_file.write_text(token)
    config.write_text(_CONFIG.format(rules=rules, token_file=token_file, target=target))
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={config}", f"--web.listen-address={address}"]
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [*command, f"--storage.tsdb.path={directory / 'data'}"], cwd=directory, stdout=said, stderr=said
        ) as process,
    ):
        try:
            _wait_until_it_answers(f"http://{address}", process, log)
            yield Prometheus(f"http://{address}")
        finally:
            process.kill()


def _wait_until_it_answers(origin: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    tick = threading.Event()
    for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
        if process.poll() is not None:
            raise AssertionError(f"Prometheus ended with {process.returncode}:\n{log.read_text()}")
        try:
            if httpx2.get(f"{origin}/-/ready", trust_env=False).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        tick.wait(_LOOK_EVERY_SECONDS)
    raise AssertionError(f"Prometheus does not answer after {PATIENCE} s:\n{log.read_text()}")
