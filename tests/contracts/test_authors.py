"""The Author contract on people and Optuna."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.authors.human import Human
from evolver.authors.structured import Structured
from evolver.config import HumanAuthor, RunConfig, StructuredAuthor
from evolver.leaks import Leaks
from evolver.protocols import Author, Evidence
from evolver.store import Store
from evolver.testing import AuthorContract
from harnesses.library import Library


class OnAnEmptyRun(AuthorContract):
    @pytest.fixture(autouse=True)
    def run(self, tmp_path: Path) -> None:
        self.store = Store.create(tmp_path / "run", RunConfig())
        self.library = Library(tmp_path / "run" / "library")
        root = self.library.add_seed("alpha")
        self.evidence = Evidence(parent_harness=root, generation=0, summary="", files={})


class TestHuman(OnAnEmptyRun):
    def make(self) -> tuple[Author, Evidence]:
        config = HumanAuthor(kind="human", harness="beta1", why="a shell should save tokens")
        return Human(config, self.store, self.library, Leaks([])), self.evidence


class TestStructured(OnAnEmptyRun):
    def make(self) -> tuple[Author, Evidence]:
        return Structured(StructuredAuthor(kind="structured", n=1), self.store, self.library), self.evidence
