"""The node bus over Redis: one connection to subscribe, one to publish, and one channel per session.

While Redis is unavailable only speed is lost: the hub finds events by polling, and deltas reach only their own node.
"""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self
from uuid import UUID

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from toolcrib.core.events import Delta, DeltaType
from toolcrib.core.ids import SessionId, WorkspaceId
from toolcrib.events.event_bus import Key, NodeBus, NodeBusListener, key_of
from toolcrib.runtime.logged_errors import error_kind

_PREFIX: Final = "toolcrib:live:"
_ASKING: Final = f"{_PREFIX}asking"
# Limit of the publish queue; the oldest message is dropped first. An old notification is worthless.
_MAX_WAITING: Final = 10_000
_BATCH: Final = 500
_CONNECT_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 10.0
# How long a first subscriber waits for the text so far from other nodes.
_ANSWER_SECONDS: Final = 0.25

log = structlog.get_logger(__name__)


class RedisBus(NodeBus):
    """Publishes and subscribes through Redis, and reconnects whenever the connection is lost."""

    def __init__(self, url: str, *, node: str, ears: NodeBusListener) -> None:
        options: dict[str, Any] = {
            "socket_connect_timeout": _CONNECT_SECONDS,
            "decode_responses": True,
            # Retries are handled below.
            "retry": Retry(NoBackoff(), 0),
        }
        self._speaking = Redis.from_url(url, socket_timeout=_CONNECT_SECONDS, **options)
        self._receiving = Redis.from_url(url, **options)
        # Two starts of one node are two publishers.
        self._me = f"{node}:{secrets.token_hex(4)}"
        self._inbox = f"{_PREFIX}node:{self._me}"
        self._ears = ears
        self._pubsub: PubSub | None = None
        self._sessions: set[Key] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._listening: dict[str, asyncio.Event] = {}
        self._answers: dict[str, _PeerReplies] = {}
        self._waiting: deque[tuple[str, str]] = deque(maxlen=_MAX_WAITING)
        self._has_waiting = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, *, node: str, ears: NodeBusListener) -> AsyncIterator[Self]:
        """Open the bus and run it. Redis need not be available yet."""
        wire = cls(url, node=node, ears=ears)
        tasks = [asyncio.create_task(wire._receive()), asyncio.create_task(wire._send())]
        try:
            yield wire
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await wire._speaking.aclose()
            await wire._receiving.aclose()

    @property
    def is_up(self) -> bool:
        return self._pubsub is not None

    # Publishing

    def notify(self, key: Key) -> None:
        self._publish(_channel(key), {"wake": True})

    def publish_delta(self, delta: Delta) -> None:
        self._publish(_channel(key_of(delta)), {"delta": _packed(delta)})

    def _publish(self, channel: str, note: dict[str, Any]) -> None:
        self._waiting.append((channel, json.dumps({"from": self._me, **note})))
        self._has_waiting.set()

    async def _send(self) -> None:
        while True:
            await self._has_waiting.wait()
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            if not self._waiting:
                self._has_waiting.clear()
            try:
                async with self._speaking.pipeline(transaction=False) as pipeline:
                    for channel, note in batch:
                        pipeline.publish(channel, note)
                    await pipeline.execute()
            except (RedisError, OSError, TimeoutError):
                # Old notifications are useless: polling finds the events.
                await asyncio.sleep(_AGAIN_SECONDS)

    # Subscribing

    async def join(self, key: Key) -> Sequence[Delta]:
        self._sessions.add(key)
        pubsub = self._pubsub
        if pubsub is None:
            return ()
        channel, question = _channel(key), secrets.token_hex(8)
        answers = self._answers[question] = _PeerReplies()
        listening = self._listening[channel] = asyncio.Event()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await pubsub.subscribe(channel)
                await listening.wait()
                note = {"from": self._me, "ask": [str(part) for part in key], "to": self._inbox, "question": question}
                # This node receives its own request too, and does not answer it.
                await answers.all(await self._speaking.publish(_ASKING, json.dumps(note)) - 1)
        except (RedisError, OSError, TimeoutError):
            pass
        finally:
            del self._answers[question]
            self._listening.pop(channel, None)
        return answers.deltas

    def leave(self, key: Key) -> None:
        self._sessions.discard(key)
        if self._pubsub is not None:
            task = asyncio.create_task(self._unsubscribe(self._pubsub, key))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _unsubscribe(self, pubsub: PubSub, key: Key) -> None:
        # Somebody may have joined again in the meantime.
        if key not in self._sessions:
            with suppress(RedisError, OSError):
                await pubsub.unsubscribe(_channel(key))

    async def _receive(self) -> None:
        while True:
            try:
                async with self._receiving.pubsub() as pubsub:
                    await pubsub.subscribe(_ASKING, self._inbox, *map(_channel, self._sessions))
                    await self._receive_on(pubsub)
            except Exception as error:  # noqa: BLE001 - the outermost loop: no answer of Redis may end it
                if self._pubsub is not None:
                    is_known = isinstance(error, RedisConnectionError)
                    log.warning("redis.disconnected", error=str(error) if is_known else error_kind(error))
            finally:
                self._pubsub = None
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _receive_on(self, pubsub: PubSub) -> None:
        is_asked = False
        while True:
            message = await pubsub.get_message(timeout=_SILENT_SECONDS)
            if message is None:
                if is_asked:
                    raise RedisConnectionError("Redis is not available.")
                is_asked = True
                await pubsub.ping()
                continue
            is_asked = False
            match message["type"]:
                case "subscribe" if message["channel"] == self._inbox:
                    self._pubsub = pubsub
                    self._ears.reconnected()
                case "subscribe" if listening := self._listening.get(message["channel"]):
                    listening.set()
                case "message":
                    # Ignore messages that other programs put on these channels.
                    with suppress(ValueError, LookupError, TypeError, AttributeError):
                        self._on_message(message["channel"], json.loads(message["data"]))

    def _on_message(self, channel: str, note: dict[str, Any]) -> None:
        if note["from"] == self._me:
            return
        if "delta" in note:
            self._ears.on_delta(_unpacked(note["delta"]))
        elif "wake" in note:
            self._ears.on_notify(_key(channel))
        elif "ask" in note:
            workspace_id, session_id = note["ask"]
            partial_texts = self._ears.partial_texts((WorkspaceId(UUID(workspace_id)), SessionId(UUID(session_id))))
            self._publish(
                note["to"], {"question": note["question"], "answer": [_packed(delta) for delta in partial_texts]}
            )
        elif "answer" in note and (answers := self._answers.get(note["question"])):
            answers.add([_unpacked(packed) for packed in note["answer"]])


class _PeerReplies:
    """The answers of the other nodes to one request."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self._came = 0
        self._news = asyncio.Event()

    def add(self, deltas: Sequence[Delta]) -> None:
        self.deltas.extend(deltas)
        self._came += 1
        self._news.set()

    async def all(self, expected: int) -> None:
        while self._came < expected:
            self._news.clear()
            await self._news.wait()


def _channel(key: Key) -> str:
    return f"{_PREFIX}{key[0]}:{key[1]}"


def _key(channel: str) -> Key:
    workspace_id, session_id = channel.removeprefix(_PREFIX).split(":")
    return WorkspaceId(UUID(workspace_id)), SessionId(UUID(session_id))


def _packed(delta: Delta) -> list[Any]:
    ids = (str(delta.workspace_id), str(delta.session_id))
    return [*ids, delta.type, delta.source, delta.text, delta.attempt, delta.offset]


def _unpacked(packed: list[Any]) -> Delta:
    workspace_id, session_id, kind, source, text, attempt, offset = packed
    key = WorkspaceId(UUID(workspace_id)), SessionId(UUID(session_id))
    return Delta(*key, DeltaType(kind), str(source), str(text), int(attempt), int(offset))
