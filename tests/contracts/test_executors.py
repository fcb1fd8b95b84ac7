"""The Executor contract."""

from __future__ import annotations

from evolver.executors.local import LocalExecutor
from evolver.protocols import Executor
from evolver.testing import ExecutorContract


class TestLocal(ExecutorContract):
    def make(self, workers: int) -> Executor:
        return LocalExecutor(workers)
