"""The Observer contract on the console and on MLflow."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from evolver.observers.console import ConsoleObserver, talk_console
from evolver.observers.mlflow import MlflowObserver
from evolver.protocols import Observer
from evolver.records import Record
from evolver.testing import ObserverContract
from tests.evolver.sample_run import records, sample_run


class OnASampleRun(ObserverContract):
    def records(self) -> Sequence[Record]:
        return records()


class TestConsole(OnASampleRun):
    told = (
        "candidate beta1",
        "promote beta1 +60.0 pp",
        "evaluated beta1",
        "student of beta1",
        "gap B - A",
        "race (0 of 0 done)",
    )

    def make(self) -> Observer:
        self.stream = io.StringIO()
        return ConsoleObserver(talk_console(self.stream))

    def seen(self) -> str:
        return self.stream.getvalue()


@pytest.mark.slow
class TestMlflow(OnASampleRun):
    told = ("race aaaaaaaa", "race bbbbbbbb", "beta1", "promote", "distil bbbbbbbb", "success", "gui_calls/calc")

    @pytest.fixture(autouse=True)
    def run(self, tmp_path: Path) -> None:
        self.run_dir = sample_run(tmp_path / "run").path
        self.troubles: list[str] = []

    def make(self) -> Observer:
        return MlflowObserver(self.run_dir, self.troubles.append)

    def seen(self) -> str:
        assert self.troubles == []
        with closing(sqlite3.connect(self.run_dir / "mlflow.db")) as store:
            asked = "SELECT name FROM runs UNION SELECT value FROM tags UNION SELECT value FROM params"
            return "\n".join(str(row[0]) for row in store.execute(f"{asked} UNION SELECT key FROM metrics"))
