"""Work of commands that Ctrl-C and SIGTERM end cleanly: what is under way is recorded, what is open is closed."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import TypeVar

import typer

from evolver.commands.talk import say

T = TypeVar("T")


def finished(work: Coroutine[object, object, T]) -> T:
    """Runs `work` and returns what it does. Stopped, it exits with 130 or 143 and says how to go on."""
    try:
        return asyncio.run(_terminable(work))
    except (KeyboardInterrupt, asyncio.CancelledError) as stop:
        say(f"stopped; nothing that was finished is lost. Resume: {again(sys.argv[1:])}")
        raise typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else 143) from None


def again(words: Sequence[str]) -> str:
    """The command that goes on with the work of `evolver WORDS`: itself, but it does not start over."""
    return shlex.join(["evolver", *(word for word in words if word != "--fresh")])


async def _terminable(work: Coroutine[object, object, T]) -> T:
    """SIGTERM cancels the work as asyncio lets SIGINT do it: code that never gives way to the loop can see it too, by
    its task's `cancelling`."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def cancel(*_: object) -> None:
        if task is not None:
            task.cancel()
            loop.call_soon_threadsafe(lambda: None)  # wakes the loop

    before = signal.signal(signal.SIGTERM, cancel)
    try:
        return await work
    finally:
        signal.signal(signal.SIGTERM, before)
