"""The pages that act: what they check on the server, what they leave behind, and what they refuse."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboards import draft, frame, starting
from evolver.authors.human import propose
from evolver.leaks import Leaks
from evolver.records import Candidate
from evolver.store import Store
from harnesses.edit import with_changes
from harnesses.library import Library
from harnesses.tree import harness_from_files, read_tree, seed_path, tree_files, write_tree
from tests.dashboards.reader import Reader, said
from tests.evolver.frozen_run import promoted

BETA1 = read_tree(seed_path("beta1"))
EDITED = b'image = "desktop"\npip = ["openpyxl"]\n'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lab = promoted(tmp_path / "runs" / "one")
    lab.library.close()
    return lab.store.path


def button(app: AppTest, label: str) -> object:
    return next(one for one in app.button if one.label == label)


def edited(app: AppTest, text: str) -> AppTest:
    next(area for area in app.text_area if area.label == "environment.toml").set_value(text).run()
    assert not app.exception
    return app


def test_a_queued_candidate_is_what_the_command_line_leaves(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Path(shutil.copytree(run, run.parents[1] / "other"))
    app = edited(Reader(run, monkeypatch).open("propose", **{"from": "beta1"}), EDITED.decode())
    assert "environment.pip: " in said(app) and button(app, "Queue as a candidate").disabled  # type: ignore[attr-defined]
    assert "no reason is given" in said(app)
    app.text_input(key="p_name").set_value("lighter")
    app.text_area(key="p_why").set_value("  two are never used ").run()
    button(app, "Queue as a candidate").click().run()  # type: ignore[attr-defined]
    assert not app.exception and "waits. It is raced" in app.success[0].value
    copy = run.parents[1] / "lighter"
    write_tree(harness_from_files({**tree_files(BETA1), "environment.toml": EDITED}), copy)
    library = Library(other / "library")
    by_hand = propose(Store.open(other), library, "beta1", copy, "two are never used", Leaks([]))
    library.close()
    in_page = Store.open(run).all(Candidate)[-1]
    assert in_page.model_copy(update={"proposed_at": by_hand.proposed_at}) == by_hand
    queued = Library(run / "library")
    assert queued.parents_of("lighter") == (BETA1.id,)
    queued.close()


def test_what_is_wrong_stands_beside_its_file_and_nothing_can_be_queued(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = edited(Reader(run, monkeypatch).open("propose"), "image = 5\n")
    assert "environment.toml (✕ can't be read, changed)" in app.selectbox(key="p_file").options
    assert any("image" in error.value for error in app.error) and "must be mended first" in said(app)
    app.text_area(key="p_why").set_value("why not").run()
    assert button(app, "Queue as a candidate").disabled  # type: ignore[attr-defined]
    button(app, "as in the parent").click().run()  # type: ignore[attr-defined]
    assert "byte for byte" in said(app) and not app.error


def test_read_only_pages_do_not_act(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(frame.READ_ONLY, "1")
    app = edited(Reader(run, monkeypatch).open("propose"), EDITED.decode())
    app.text_area(key="p_why").set_value("because").run()
    assert "these pages are read-only" in said(app)
    assert button(app, "Queue as a candidate").disabled  # type: ignore[attr-defined]
    app = Reader(run, monkeypatch).open("freeze")
    assert "these pages are read-only" in said(app) and button(app, "Freeze").disabled  # type: ignore[attr-defined]


def test_a_draft_says_which_file_is_wrong_and_which_is_changed() -> None:
    tree = tree_files(BETA1)
    edits = draft.Edits(BETA1.files, {**tree, "files/new.sh": b"#!/bin/sh\n", "scaffold.toml": b"max_steps = 0\n"})
    edits.files.pop("prompt/task.md")
    marks = {path: edits.mark(path) for path in edits.paths if edits.mark(path)}
    assert marks == {"files/new.sh": "new", "scaffold.toml": "changed", "prompt/task.md": "removed"}
    assert "files/new.sh" in edits.tree().executable
    made, wrong = draft.checked(edits.tree())
    assert made is None and wrong == {draft.WHOLE: ["prompt/task.md: missing; every harness has one"]}
    edits.files["prompt/task.md"] = tree["prompt/task.md"]
    assert draft.checked(edits.tree())[1].keys() == {"scaffold.toml"}
    assert draft.checked(with_changes(BETA1, {"scaffold.max_steps": 9}))[0] is not None


def test_freezing_needs_a_name_and_the_id_and_is_checked_before_it_starts(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Reader(run, monkeypatch).open("freeze")
    assert "it needs a name" in said(app)
    app.text_input(key="z_name").set_value("../out").run()
    assert f"the confirmation is not {BETA1.id[:8]}" in said(app)
    app.text_input(key="z_sure").set_value(BETA1.id[:8]).run()
    button(app, "Freeze").click().run()  # type: ignore[attr-defined]
    assert "expected lower-case letters" in app.error[0].value and not list(run.glob("freeze-*.log"))
    app.text_input(key="z_name").set_value("b-1").run()
    with Store.open(run).working():
        assert "is working on this run" in said(app.run())


def test_a_started_command_says_what_it_does_and_how_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "freeze-x.log"
    assert starting.look(log, tmp_path) is None
    assert starting.start(("harness", "show", "nowhere"), log)
    assert not starting.start(("harness", "show", "nowhere"), log), "while it runs, a second press does nothing"
    for _ in range(600):
        found = starting.look(log, tmp_path)
        assert found is not None
        if not found.running:
            break
        time.sleep(0.1)
    assert (found.running, found.code) == (False, 2)
    assert found.lines[0] == "$ evolver harness show nowhere" and "nowhere" in found.lines[-1]
