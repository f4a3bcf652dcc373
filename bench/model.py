"""A model on loopback for benchmarks: answers at once or at a fixed rate, determined by the request alone.

usage: python -m bench.model PORT

``scripted-N`` calls `read_file` on sample-0000.txt, sample-0001.txt … in N turns, then writes 200 words, the last of
them `w199`. ``counted-N-MS`` does the same with `read_sample`, and waits MS milliseconds before each answer.
``paced-N-MS`` writes N words, one every MS milliseconds; each word is the time at which it was written. A request
without a model returns the number of requests so far.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

WORDS = [f"w{number} " for number in range(199)] + ["w199"]
_NAMED = re.compile(rb'"model"\s*:\s*"(scripted|counted|paced)-(\d+)(?:-(\d+))?"')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_TAIL = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Model(asyncio.Protocol):
    """The protocol of one connection."""

    requests = 0

    def __init__(self) -> None:
        self._read = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._read[:end])
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._read) < whole:
                return
            body, self._read = self._read[end + 4 : whole], self._read[whole:]
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        named = _NAMED.search(body)
        if named is None:
            body = b'{"requests": %d}' % Model.requests
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            return
        Model.requests += 1
        kind, count = named[1], int(named[2])
        if kind == b"paced":
            task = asyncio.ensure_future(self._paced(count, int(named[3] or 20) / 1000))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        # Every result has this key and no other.
        done = body.count(b'"tool_call_id"')
        pieces = _words() if done >= count else _call("read_sample" if kind == b"counted" else "read_file", done)
        answer = _HEAD + b"".join(map(_chunk, pieces)) + _TAIL
        asyncio.get_running_loop().call_later(int(named[3] or 0) / 1000, self._transport.write, answer)

    async def _paced(self, count: int, gap: float) -> None:
        began = time.monotonic()
        self._transport.write(_HEAD)
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number * gap - time.monotonic()))
            self._transport.write(_chunk({"content": f"{time.monotonic_ns()} "}))
        self._transport.write(_chunk({}, "stop") + _TAIL)


def _words() -> Iterator[Any]:
    yield from ({"content": word} for word in WORDS)
    yield "stop"


def _call(name: str, number: int) -> Iterator[Any]:
    arguments = json.dumps({"path": f"sample-{number:04d}.txt"})
    call = {"index": 0, "id": f"call_{number:04d}", "type": "function"}
    yield {"tool_calls": [call | {"function": {"name": name, "arguments": ""}}]}
    yield {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}
    yield "tool_calls"


def _chunk(delta: Any, reason: str | None = None) -> bytes:
    if isinstance(delta, str):
        delta, reason = {}, delta
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
