"""Tells a person on stderr how the run goes: bars on a terminal, one line now and then elsewhere."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from pydantic import JsonValue
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from evolver.phrasing import percent, pp
from evolver.records import Candidate, Decision, Distillation, Ending, Evaluation, Gap, Record

EVERY_S = 10.0
SHORT = 12  # digits of a harness id in what is said on the way
AN_ID = re.compile(rf"\b[0-9a-f]{{{SHORT}}}\b")


def talk_console(stream: TextIO | None = None) -> Console:
    """A console for stderr that stays plain when it isn't a terminal, whatever FORCE_COLOR says."""
    out = stream or sys.stderr
    terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    return Console(
        file=out, force_terminal=terminal, force_interactive=terminal, no_color=True if _no_color() else None,
        soft_wrap=True, highlight=False, markup=False,
    )  # fmt: skip


def _no_color() -> bool:
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


class ConsoleObserver:
    """Progress by label with counts, success so far, tokens and time left; a line for each thing that was settled.

    `names` looks up harness id → name: once, and again where an id is left in what is said. Candidates that come by
    are known as well.
    """

    def __init__(
        self,
        console: Console,
        names: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._clock = clock
        self._look_up = names
        self._names = dict(names())
        self._bars: Progress | None = None
        self._bar: dict[str, TaskID] = {}
        self._told: set[str] = set()
        self._began: dict[str, tuple[float, int]] = {}
        self._spoke = float("-inf")

    def on_record(self, record: Record) -> None:
        if isinstance(record, Candidate):
            self._names.setdefault(record.harness_id, record.name)
        line = describe(record)
        if line:
            self._say(line)

    def progress(self, text: str, done: int, total: int, detail: Mapping[str, JsonValue]) -> None:
        if not detail:  # a step without rollouts, which may write to the same terminal itself: no live bar beside it
            self.close()
            notice = done == total == 1 and f"{text} (0 of 1 done)" not in self._told
            line = text if notice else f"{text} ({done} of {total} done)"
            if line not in self._told:  # a watchdog is told of the same step every minute
                self._told.add(line)
                self._say(line)
            return
        now = self._clock()
        began, at = self._began.setdefault(text, (now, done))
        parts = [f"{text or 'rollouts'} {done:,}/{total:,}"]
        success, tokens = detail.get("success"), detail.get("tokens")
        if isinstance(success, int | float):
            parts.append(f"success {success:.2f}")
        if isinstance(tokens, int | float) and tokens:
            parts.append(f"{_thousands(tokens)} tokens")
        if done > at and done < total:
            parts.append(f"{_minutes((now - began) / (done - at) * (total - done))} left")
        line = " · ".join(parts)
        if self._console.is_interactive:
            self._draw(text, done, total, line)
        elif done > at and (done == total or now - self._spoke >= EVERY_S):
            self._spoke = now
            self._say(line)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._bar.clear()

    def _say(self, line: str) -> None:
        self._console.print(self._named(line))

    def _named(self, line: str) -> str:
        said = self._replaced(line)
        if AN_ID.search(said) is None:
            return said
        self._names |= self._look_up()  # it may have come since
        return self._replaced(line)

    def _replaced(self, line: str) -> str:
        for harness_id, name in self._names.items():
            line = line.replace(harness_id[:SHORT], name)
        return line

    def _draw(self, text: str, done: int, total: int, line: str) -> None:
        if self._bars is None:
            self._bars = Progress(
                BarColumn(24), TextColumn("{task.description}", markup=False), console=self._console,
                redirect_stdout=sys.stdout.isatty(),  # what goes into a pipe is data and must get there
            )  # fmt: skip
            self._bars.start()
        line = self._named(line)
        if text not in self._bar:
            self._bar[text] = self._bars.add_task(line, total=total)
        self._bars.update(self._bar[text], completed=done, total=total, description=line)
        if done == total:
            self._bars.remove_task(self._bar.pop(text))
            self._bars.refresh()
            self._say(line)


def describe(record: Record) -> str | None:
    """One line for a record that settles something; None for the many small ones."""
    match record:
        case Candidate(parents=()):
            return f"the lineage starts from {record.name}"
        case Candidate():
            return f"candidate {record.name} ({'+'.join(record.components)}) by {record.author}: {record.manifest.why}"
        case Decision():
            effect = record.confirmation or (record.looks[-1].effect if record.looks else None)
            points = f" {pp(effect)}" if effect is not None else ""
            why = record.reasons[-1] if record.reasons else "no reason given"
            return f"{record.verdict} {record.candidate_harness[:SHORT]}{points}: {why}"
        case Evaluation():
            success = f"{percent(record.success)}, n = {record.success.n}"
            return f"evaluated {record.harness_id[:SHORT]} with {record.model_id} on {record.split}: {success}"
        case Distillation():
            made = f"{record.rows} rows, {record.train_s:.0f} s"
            return f"student of {record.teacher_harness[:SHORT]} seed {record.seed}: {made}"
        case Gap():
            return f"gap B - A: teachers {pp(record.teacher_gap)}, students {pp(record.student_gap)}"
        case Ending() if record.reason != "done":
            return f"stopped ({record.reason}): {record.detail}"
    return None


def _thousands(tokens: float) -> str:
    return f"{tokens / 1e6:.1f} M" if tokens >= 1e6 else f"{tokens / 1e3:.0f} k"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
