"""The driver of the terminal: ends the chat when the terminal is closed, and suspends it as a shell expects."""

import asyncio
import os
import select
import signal
import threading
from contextlib import suppress
from typing import Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

HUNG_UP = 128 + signal.SIGHUP


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux, which alone reads a closed terminal for ever and blocks when it writes to it."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._loop = asyncio.get_running_loop()
        self._is_suspended = False
        threading.Thread(target=self._wait_for_hangup, name="toolcrib-hangup", daemon=True).start()

    def hang_up(self) -> None:
        """Ends the chat without the terminal. Can be called more than once, and from any thread."""
        release_terminal()
        # The input thread would read the end of the input over and over.
        self.exit_event.set()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._app.exit, None, HUNG_UP)

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        except OSError:
            self.hang_up()

    def _wait_for_hangup(self) -> None:
        """Waits until the other side of the terminal is closed. Without events to wait for, only that is reported."""
        terminal = select.poll()
        terminal.register(self.fileno, 0)
        terminal.poll()
        self.hang_up()

    # Suspending

    def suspend(self) -> bool:
        """Suspends the processes of the shell's job. Returns False if no shell could resume them."""
        if os.getsid(os.getppid()) != os.getsid(0):
            return False
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        return True

    def _sigtstp_application(self, *_: object) -> None:
        self._is_suspended = True
        super()._sigtstp_application()

    def _sigcont_application(self, *_: object) -> None:
        # Also sent to a process that was not suspended.
        if self._is_suspended:
            self._is_suspended = False
            super()._sigcont_application()


def release_terminal() -> None:
    """Replaces a closed terminal, so that what is still written to it fails nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
