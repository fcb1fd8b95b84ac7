"""Structured edits touch one file and one field; a diff says in words what was changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from harnesses.diff import diff
from harnesses.edit import with_changes
from harnesses.harness import Harness
from harnesses.tree import HarnessError, Tree, harness_from_files, read_tree, seed_path, tree_files, write_tree


def seed(name: str = "beta1") -> Harness:
    return read_tree(seed_path(name))


def edited(harness: Harness, changes: dict[str, JsonValue]) -> Harness:
    return harness_from_files(with_changes(harness, changes))


def test_an_edit_rewrites_only_the_touched_field_and_keeps_comments() -> None:
    files = tree_files(seed())
    files["scaffold.toml"] = b"# measured on 60 tasks\n" + files["scaffold.toml"]
    old = harness_from_files(files)
    new = with_changes(old, {"scaffold.max_steps": 30})
    assert new == {
        **old.files,
        "scaffold.toml": old.files["scaffold.toml"].replace(b"max_steps = 20", b"max_steps = 30"),
    }


@settings(max_examples=50, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "scaffold.max_steps": st.integers(1, 200),
            "scaffold.history": st.sampled_from(["one_line", "full", "none"]),
            "scaffold.observation.max_chars": st.integers(200, 40_000),
            "scaffold.sampling.temperature": st.floats(0, 2),
            "scaffold.finish_check": st.booleans(),
            "environment.pip": st.lists(st.sampled_from(["openpyxl", "lxml", "numpy==2.1"]), unique=True),
            "tools.a11y_tree": st.booleans(),
            "tools.bash.timeout_s": st.floats(1, 600),
            "prompt.system": st.text(st.characters(codec="utf-8"), min_size=1),
        },
    )
)
def test_an_edit_is_stable_readable_and_undone_by_its_opposite(changes: dict[str, JsonValue]) -> None:
    old = seed()
    new = edited(old, changes)
    assert edited(new, changes).id == new.id
    named = diff(old, new)
    assert (named.components == ()) == (old.id == new.id) == (named.changes == ()) == (named.patch == "")
    dumped = new.model_dump(mode="json", include={"scaffold", "environment"})
    for field, value in changes.items():
        part, *keys = field.split(".")
        if part in dumped:
            found: JsonValue = dumped[part]
            for key in keys:
                assert isinstance(found, dict)
                found = found[key]
            assert found == value


def test_a_value_that_is_there_already_changes_nothing() -> None:
    same: dict[str, JsonValue] = {
        "scaffold.finish_check": False,
        "scaffold.max_steps": 20,
        "tools.bash": True,
        "tools.a11y_tree": False,
    }
    assert edited(seed(), same).id == seed().id


def test_none_goes_back_to_the_default() -> None:
    new = edited(seed("beta2"), {"scaffold.observation.max_chars": None})
    assert b"max_chars" not in new.files["scaffold.toml"] and new.scaffold.observation.max_chars == 4_000


def test_a_tool_leaves_with_its_note() -> None:
    noted = edited(seed(), {"prompt.notes.bash": "Prefer python3."})
    assert noted.prompt.notes == {"bash": "Prefer python3."}
    bare = edited(noted, {"tools.bash": False})
    assert [t.name for t in bare.tools] == ["computer_use"] and bare.prompt.notes == {}
    assert diff(noted, bare).changes == ("tools: - bash", "prompt.notes: - bash")
    assert diff(noted, bare).components == ("T", "P")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scaffold.max_steps": 0}, "scaffold.toml: max_steps: expected an integer in 1..200, got 0"),
        ({"scaffold.max_stepz": 3}, "max_stepz: unknown field, did you mean 'max_steps'?"),
        ({"scaffold.history.x": 3}, "scaffold.toml: history.x: 'history' is a value, expected a table"),
        (
            {"tools.browser": True},
            "tools.browser: expected a tool of the seeds alpha, beta1, beta2, none has 'browser'",
        ),
        ({"tools.a11y_tree.description": "x"}, "expected a tool of the harness, got 'a11y_tree'"),
        ({"prompt.system": 3}, "prompt.system: expected text, got 3"),
        ({"prompt.system": None}, "prompt/system.md: missing"),
        ({"screen": 3}, "screen: expected scaffold.FIELD, environment.FIELD"),
    ],
)
def test_a_bad_edit_says_what_was_expected(changes: dict[str, JsonValue], said: str) -> None:
    with pytest.raises(HarnessError) as caught:
        with_changes(seed(), changes)
    assert said in str(caught.value)


def test_a_diff_names_components_and_fields() -> None:
    old = seed()
    changes: dict[str, JsonValue] = {
        "scaffold.screenshots_kept": 1,
        "scaffold.observation.text": "none",
        "tools.a11y_tree": True,
        "tools.computer_use.actions": ["key", "type", "terminate"],
        "prompt.system": old.prompt.system + "Prefer the shell.\n",
        "environment.pip": ["openpyxl", "python-docx", "lxml"],
    }
    found = diff(old, edited(old, changes))
    assert found.components == ("F", "T", "P", "E")
    assert {
        "scaffold.screenshots_kept: 3 → 1",
        "scaffold.observation.text: marks → none",
        "tools: + a11y_tree",
        "tools.computer_use.actions: - left_click",
        "prompt.system: 108 → 111 words (+1 −0 lines)",
        "environment.pip: - python-pptx",
        "environment.pip: + lxml",
    } <= set(found.changes)


def test_programs_belong_to_what_calls_them() -> None:
    old = seed()
    hook = {"scaffold.toml": b"[[hooks]]\nat = 'start'\nentry = 'files/hook.sh'\n", "files/hook.sh": b"#!/bin/sh\n"}
    hooked = harness_from_files({**tree_files(old), **hook})
    assert diff(old, hooked).components == ("F",)
    assert "files: + files/hook.sh" in diff(old, hooked).changes
    quiet = harness_from_files(Tree(hooked.files, []))
    assert diff(hooked, quiet).changes == ("files: files/hook.sh is no longer executable",)
    assert diff(hooked, quiet).components == ("F",)


def test_a_comment_alone_is_a_change_of_text_and_of_the_component() -> None:
    old = seed()
    new = harness_from_files(Tree({**old.files, "environment.toml": old.files["environment.toml"] + b"# why\n"}, []))
    assert (diff(old, new).components, diff(old, new).changes) == (("E",), ("environment.toml: no field changed",))


def test_git_applies_the_patch(tmp_path: Path) -> None:
    old = seed()
    write_tree(old, tmp_path / "tree")
    files = {**with_changes(old, {"scaffold.max_steps": 9, "tools.bash": False}), "files/run": b"#!/bin/sh\nexit 0"}
    new = harness_from_files(files)
    git = ("git", "-c", "core.fileMode=true", "apply", "--unsafe-paths", "-p1", "-")
    subprocess.run(git, cwd=tmp_path / "tree", input=diff(old, new).patch.encode(), check=True)
    assert read_tree(tmp_path / "tree").id == new.id
