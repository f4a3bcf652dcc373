"""llama.cpp's server with a real, small model, and a proxy that forces a tool call. See scripts/real_model."""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2

HOME = Path(__file__).parents[2] / ".local" / "real-model"
MODEL = "smollm2"
KEY = "sk-a-key-of-this-test-alone"
CONTEXT = 4096
_START_SECONDS = 60


@contextmanager
def llama(log: Path, *, calls: bool) -> Iterator[str]:
    """Start a server and yield its URL when it is ready. With ``calls`` the model can only call tools.

    Its own template has no tools. With the one that has, the server fails when so small a model writes text instead.
    """
    for part in ("llama-server", "model.gguf", "template.jinja"):
        assert (HOME / part).exists(), f"{HOME / part} is missing. `make campaigns ONLY=real` makes it."
    port = _free_port()
    template: list[str | Path] = ["--chat-template-file", HOME / "template.jinja"] if calls else []
    command: list[str | Path] = [
        HOME / "llama-server", "-m", HOME / "model.gguf", "--alias", MODEL, "--host", "127.0.0.1", "--port", str(port),
        "-c", str(CONTEXT), "-np", "1", "--jinja", "--temp", "0", "--api-key", KEY, *template,
    ]  # fmt: skip
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            _wait_until_ready(process, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@asynccontextmanager
async def insisting_on_a_call(calling: str, talking: str) -> AsyncIterator[str]:
    """Yield the URL of a proxy that chooses the model.

    A request with tools and no call yet goes to a model that must call one; every other request goes to the one that
    writes text. The text and the arguments of the call are the model's own.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.rstrip("\r\n").split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            is_for_a_call = _is_for_a_call(body)
            url, body = (calling, _insisting(body)) if is_for_a_call else (talking, body)
            method, path, _ = first.split(" ")
            sent = {name: value for name, value in headers.items() if name in ("authorization", "content-type")}
            async with (
                httpx2.AsyncClient(trust_env=False, timeout=120) as http,
                http.stream(method, url + path, content=body, headers=sent) as answer,
            ):
                kind = answer.headers.get("content-type", "application/json")
                writer.write(f"HTTP/1.1 {answer.status_code} Said\r\ncontent-type: {kind}\r\n".encode())
                writer.write(b"connection: close\r\n\r\n")
                async for chunk in answer.aiter_raw():
                    writer.write(chunk)
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "http://{}:{}".format(*server.sockets[0].getsockname()[:2])


def _is_for_a_call(body: bytes) -> bool:
    asked = json.loads(body) if body else {}
    # In chat completions a result is a message, in Responses an item.
    said = asked.get("messages") or asked.get("input") or []
    results = [one for one in said if one.get("role") == "tool" or one.get("type") == "function_call_output"]
    return bool(asked.get("tools")) and not results


def _insisting(body: bytes) -> bytes:
    return json.dumps({**json.loads(body), "tool_choice": "required", "parallel_tool_calls": False}).encode()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    transport = httpx2.HTTPTransport(retries=100)
    with httpx2.Client(transport=transport, trust_env=False, timeout=_START_SECONDS) as http:
        while http.get(f"http://127.0.0.1:{port}/health").status_code != 200:
            assert process.poll() is None, f"llama-server ended by itself:\n{log.read_text()[-4000:]}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
