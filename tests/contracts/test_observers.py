"""The Observer contract on the console and on MLflow."""

from __future__ import annotations

import io
from collections.abc import Sequence
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
    def make(self) -> Observer:
        return ConsoleObserver(talk_console(io.StringIO()))


@pytest.mark.slow
class TestMlflow(OnASampleRun):
    @pytest.fixture(autouse=True)
    def run(self, tmp_path: Path) -> None:
        self.run_dir = sample_run(tmp_path / "run").path

    def make(self) -> Observer:
        troubles: list[str] = []
        self.troubles = troubles
        return MlflowObserver(self.run_dir, troubles.append)

    def test_nothing_goes_wrong_on_the_way(self) -> None:
        self.test_takes_every_record_and_any_progress()
        assert self.troubles == []
