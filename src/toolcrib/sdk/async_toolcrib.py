"""The SDK for asyncio programs. Each run waits in a thread, so nothing blocks the event loop."""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from toolcrib.client import ApprovalOut, AuditRecordOut, QuestionPauseOut
from toolcrib.sdk.approval_callbacks import CallbackDecision
from toolcrib.sdk.run_events import Event, RunResult, RunUnfinished
from toolcrib.sdk.session_client import Attached
from toolcrib.sdk.session_review import SessionReview
from toolcrib.sdk.toolcrib import Toolcrib, TrustLevel

if TYPE_CHECKING:
    from toolcrib.tools.tool import Tool

# Both kinds of callback work: a coroutine function runs in the event loop, a plain function in a thread.
AsyncApprove = Callable[[ApprovalOut], CallbackDecision | Awaitable[CallbackDecision]]
AsyncAnswer = Callable[[QuestionPauseOut], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


class AsyncToolcrib:
    """Like ``Toolcrib``, with ``async with`` and ``await``; ``approve`` and ``answer`` may be coroutine functions.

    Cancelling the task that waits for a run cancels the run.
    """

    def __init__(
        self,
        directory: str | PathLike[str] = ".",
        *,
        model: str | None = None,
        approve: AsyncApprove | None = None,
        answer: AsyncAnswer | None = None,
        tools: Iterable["Tool"] = (),
        instructions: str = "",
        trust: TrustLevel | None = None,
        agent: str | None = None,
        server: str | None = None,
        workspace: str | None = None,
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        # The callback's coroutine that the listening thread waits for.
        self._asked: concurrent.futures.Future[Any] | None = None
        # The consumer has left the stream. Read after `_asked` is set, and set before `_asked` is read.
        self._is_left = False
        self._crib = Toolcrib(
            directory,
            model=model,
            approve=(lambda waiting: self._waited(approve(waiting))) if approve else None,
            answer=(lambda waiting: self._waited(answer(waiting))) if answer else None,
            tools=tools,
            instructions=instructions,
            trust=trust,
            agent=agent,
            server=server,
            workspace=workspace,
        )

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._crib.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._crib.__exit__, kind, error, trace)

    async def run(self, prompt: str, *, priority: int | None = None, attachments: Sequence[Attached] = ()) -> RunResult:
        """Send a prompt to the agent and return its answer.

        Args:
            attachments: Images and PDFs that the model sees: a ``Path`` of this computer, ``bytes``, or a ``str``,
                which is a path of the workspace.
            priority: From 0 to 1000, by default 100. Lower ones start first while runs of the workspace wait.

        Raises:
            RunUnfinished: The run ended without an answer.
        """
        result = None
        async for event in self.stream(prompt, priority=priority, attachments=attachments):
            result = event
        assert isinstance(result, RunResult)
        if not result.ok:
            raise RunUnfinished(result)
        return result

    async def stream(
        self, prompt: str, *, priority: int | None = None, attachments: Sequence[Attached] = ()
    ) -> AsyncIterator[Event]:
        """Send a prompt to the agent and yield the run's events; the last one is a ``RunResult``.

        Leaving the iteration early cancels the run; at once if it is closed by ``contextlib.aclosing``.
        """
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._is_left = False
        run_events = self._crib.stream(prompt, priority=priority, attachments=attachments)
        working = asyncio.create_task(asyncio.to_thread(self._listen, run_events, loop, events.put_nowait))
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            self._is_left = True
            if (asked := self._asked) is not None:
                asked.cancel()
            if not working.done():
                await asyncio.to_thread(self._crib.cancel)
            await working

    async def cancel(self) -> None:
        """Cancel the current run, if there is one."""
        await asyncio.to_thread(self._crib.cancel)

    async def new_session(self, *, plan: bool = False) -> UUID:
        """Start a new session, optionally in plan mode. The first one starts automatically."""
        return await asyncio.to_thread(self._crib.new_session, plan=plan)

    async def resume(self, session_id: UUID) -> None:
        """Continue an earlier session."""
        await asyncio.to_thread(self._crib.resume, session_id)

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool yourself, through the gate."""
        return await asyncio.to_thread(self._crib.call, tool, **arguments)

    async def explain(self, tool: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Return which rule would decide if the agent made this call, and why."""
        return await asyncio.to_thread(self._crib.explain, tool, **arguments)

    async def undo(
        self, result: RunResult | None = None, *, dry_run: bool = False, force: bool = False
    ) -> Mapping[str, Any]:
        """Undo the file changes of a run; by default of the last run that changed something."""
        return await asyncio.to_thread(self._crib.undo, result, dry_run=dry_run, force=force)

    async def redo(self, *, dry_run: bool = False, force: bool = False) -> Mapping[str, Any]:
        """Redo the last undo, if nothing has changed since."""
        return await asyncio.to_thread(self._crib.redo, dry_run=dry_run, force=force)

    async def changes(self, result: RunResult) -> list[Mapping[str, Any]]:
        """Return what a run changed: ``path``, ``change``, ``diff`` …"""
        return await asyncio.to_thread(self._crib.changes, result)

    async def review(self) -> SessionReview:
        """Return what the agent changed in this session since the last review, to keep or revert it.

        Its methods block; call them with ``asyncio.to_thread``.
        """
        return await asyncio.to_thread(self._crib.review)

    async def log(self, limit: int = 20) -> list[AuditRecordOut]:
        """Return the newest audit records."""
        return await asyncio.to_thread(self._crib.log, limit)

    def _listen(
        self, run_events: Iterator[Event], loop: asyncio.AbstractEventLoop, put: Callable[[Event | None], None]
    ) -> None:
        try:
            for event in run_events:
                loop.call_soon_threadsafe(put, event)
        except concurrent.futures.CancelledError:
            # The consumer has left the run, so the callback was cancelled.
            return
        finally:
            loop.call_soon_threadsafe(put, None)

    def _waited(self, value: Any) -> Any:
        """Return the callback's result to the listening thread; waits for it if it is a coroutine."""
        if not isinstance(value, Awaitable):
            return value
        assert self._loop is not None
        self._asked = asked = asyncio.run_coroutine_threadsafe(_awaited(value), self._loop)
        if self._is_left:
            asked.cancel()
        try:
            return asked.result()
        finally:
            self._asked = None


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
