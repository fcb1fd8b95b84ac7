"""One run on disk for all tests of the pages, and a fresh copy for those that damage it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.dashboards.fixture_run import build

pytest.importorskip("streamlit", reason="the dashboard extra is not installed")


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "demo"
    build(path)
    return path


@pytest.fixture
def run_copy(whole_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_run, tmp_path / "runs" / "demo"))
