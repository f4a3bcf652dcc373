"""A real searx, as Debian packages it: SearXNG's predecessor, with the same JSON. It queries a server of ours."""

import os
import random
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.wait_until import PATIENCE

_LOOK_EVERY_SECONDS = 0.05
_PORTS = range(20_000, 32_000)

_SETTINGS = """
general: {{debug: false, instance_name: test}}
# No engine is suspended after a failure: the next test asks it again at once.
search: {{safe_search: 0, autocomplete: "", default_lang: en, formats: [html, json], ban_time_on_fail: 0,
  max_ban_time_on_fail: 0}}
server: {{port: {port}, bind_address: 127.0.0.1, secret_key: only-for-tests-on-this-machine, base_url: false,
  image_proxy: false, limiter: false, http_protocol_version: "1.0", method: GET, default_http_headers: {{}}}}
ui: {{static_path: /usr/share/python3-searx/static, templates_path: /usr/share/python3-searx/templates,
  default_theme: oscar, default_locale: "", theme_args: {{oscar_style: logicodev}}}}
outgoing: {{request_timeout: 3.0, useragent_suffix: ""}}
locales: {{en: English}}
engines:
  - {{name: ours, engine: json_engine, shortcut: us, categories: general, enable_http: true, paging: true,
     search_url: "{source}/?q={{query}}&page={{pageno}}", results_query: results, url_query: url, title_query: title,
     content_query: text}}
doi_resolvers: {{oadoi.org: "https://oadoi.org/"}}
default_doi_resolver: oadoi.org
"""


@contextmanager
def searx(directory: Path, source: str) -> Iterator[str]:
    """Start it, wait until it responds, yield its URL, and stop it. Its results come from ``source``."""
    port = _free_port()
    settings = directory / "settings.yml"
    settings.write_text(_SETTINGS.format(port=port, source=source))
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "SEARX_SETTINGS_PATH": str(settings)}
    log = directory / "searx.log"
    with (
        log.open("wb") as said,
        subprocess.Popen(["searx-run"], env=environment, cwd=directory, stdout=said, stderr=said) as process,
    ):
        try:
            _wait_until_it_answers(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _wait_until_it_answers(origin: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    tick = threading.Event()
    for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
        if process.poll() is not None:
            raise AssertionError(f"searx ended with {process.returncode}:\n{log.read_text()}")
        try:
            if httpx2.get(f"{origin}/healthz", trust_env=False).status_code == 200:
                return
        except httpx2.TransportError:
            tick.wait(_LOOK_EVERY_SECONDS)
    raise AssertionError(f"searx does not answer after {PATIENCE} s:\n{log.read_text()}")


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("None of 100 ports is free.")
