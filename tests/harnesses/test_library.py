"""The library: commits, names, lineages and tags in a real git repository, killed and resumed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harnesses.edit import with_changes
from harnesses.library import Library, UnknownHarness
from harnesses.tree import SEEDS, HarnessError, Tree, read_archive, read_tree, seed_path, tree_files

WRITER = """
import sys
from pathlib import Path
from harnesses.library import Library
from harnesses.edit import with_changes
library = Library(Path(sys.argv[1]))
parent = library.add_seed("beta1")
for steps in range(1, 1 + int(sys.argv[2])):
    tree = with_changes(library.get(parent), {"scaffold.max_steps": 100 + steps})
    parent = library.add(tree, name=f"steps-{steps}", parents=[parent], branch="beta1")
    library.tag(parent, f"frozen-{steps}", "a tag for each")
    print(parent, flush=True)
"""


@pytest.fixture
def library(tmp_path: Path) -> Library:
    made = Library(tmp_path / "run" / "harnesses.git")
    for seed in SEEDS:
        made.add_seed(seed)
    return made


def git(library_path: Path, *words: str) -> str:
    return subprocess.run(
        ("git", "--git-dir", str(library_path), *words), capture_output=True, text=True, check=True
    ).stdout.strip()


def where(library: Library) -> Path:
    return library.path


def test_what_was_added_comes_back_whole(library: Library) -> None:
    for seed in SEEDS:
        expected = read_tree(seed_path(seed))
        assert library.get(seed) == library.get(expected.id) == library.get(expected.id[:7]) == expected
    assert list(library.names()) == sorted(SEEDS)


def test_e41_the_harness_that_is_loaded_is_the_one_that_was_added(library: Library) -> None:
    """Nothing is lost between the edit and the rollout: git, the library and a fresh process agree on the id."""
    edited = with_changes(library.get("beta1"), {"scaffold.max_steps": 7, "prompt.notes.bash": "Use python3."})
    edited = Tree(
        {**edited, "files/deep/er/tool.py": b"#!/usr/bin/env python3\n\x00\xff", "files/.gitignore": b"*"}, None
    )
    added = library.add(edited, name="edited", parents=["beta1"])
    assert git(where(library), "rev-parse", "names/edited^{tree}") == added
    loaded = Library(where(library)).get("edited")
    assert loaded.id == added
    assert tree_files(loaded) == edited and loaded.executable == edited.executable == {"files/deep/er/tool.py"}


def test_a_candidate_is_a_commit_on_its_parents_and_a_lineage_a_branch(library: Library) -> None:
    beta1, beta2 = library.resolve("beta1"), library.resolve("beta2")
    child = library.add(
        with_changes(library.get("beta1"), {"tools.a11y_tree": True, "scaffold.max_steps": 9}),
        name="crossed",
        parents=["beta1", beta2, beta2],
        message="takes the tree tool over",
        branch="beta1",
    )
    assert library.parents_of(child) == (beta1, beta2)
    assert git(where(library), "log", "-1", "--format=%P", "names/crossed").split() == [
        library.commit_of("beta1"),
        library.commit_of("beta2"),
    ]
    assert library.lineage("beta1") == [beta1, child] and library.lineage("alpha") == [library.resolve("alpha")]
    side = library.add(with_changes(library.get("beta1"), {"scaffold.max_steps": 8}), name="side", parents=["beta1"])
    assert library.lineage("beta1") == [beta1, child]
    library.advance("beta1", "side")
    assert library.lineage("beta1") == [beta1, side]
    assert library.get("crossed").id == child
    assert git(where(library), "fsck", "--strict", "--no-dangling") == ""


def test_an_equal_tree_is_one_version_under_two_names(library: Library) -> None:
    before = git(where(library), "rev-list", "--all", "--count")
    twin = library.add(tree_files(read_tree(seed_path("beta1"))), name="twin", parents=["alpha"], branch="twin")
    assert twin == library.resolve("beta1") == library.names()["twin"]
    assert library.lineage("twin") == [twin]
    assert git(where(library), "rev-list", "--all", "--count") == before


def test_a_name_is_never_moved_to_another_harness(library: Library) -> None:
    other = with_changes(library.get("beta1"), {"scaffold.max_steps": 3})
    with pytest.raises(HarnessError, match="the name 'beta1' belongs to harness"):
        library.add(other, name="beta1")
    with pytest.raises(HarnessError, match=r"name '\.\./x': expected lower-case letters"):
        library.add(other, name="../x")
    with pytest.raises(HarnessError, match=r"max_steps: expected an integer in 1\.\.200, got 0"):
        library.add({**other, "scaffold.toml": b"max_steps = 0"}, name="bad")
    assert list(library.names()) == sorted(SEEDS)


def test_an_unknown_harness_says_what_there_is(library: Library) -> None:
    with pytest.raises(UnknownHarness, match=r"unknown harness 'betta1'; did you mean 'beta1'\?"):
        library.get("betta1")
    with pytest.raises(UnknownHarness, match="unknown harness '123456'; known: alpha, beta1, beta2"):
        library.get("123456")
    with pytest.raises(UnknownHarness, match="unknown lineage 'gamma'; known: alpha, beta1, beta2"):
        library.lineage("gamma")
    with pytest.raises(UnknownHarness):
        library.add(with_changes(library.get("beta1"), {"scaffold.max_steps": 3}), name="orphan", parents=["gone"])
    with pytest.raises(UnknownHarness, match="known: none yet"):
        Library(where(library).with_name("empty.git")).get("beta1")


def test_a_prefix_that_fits_two_lists_them(library: Library) -> None:
    base, seen = library.get("beta1"), dict[str, str]()
    for tokens in range(2_000, 4_000):  # ids are hashes: some two of these share their first four digits
        tree = with_changes(base, {"scaffold.window_tokens": tokens})
        key = read_id(tree)[:4]
        if key in seen.values():
            twin = next(name for name, digits in seen.items() if digits == key)
            for steps in (int(twin), tokens):
                library.add(with_changes(base, {"scaffold.window_tokens": steps}), name=f"w{steps}")
            with pytest.raises(UnknownHarness, match=f"'{key}' fits 2 harnesses"):
                library.get(key)
            return
        seen[str(tokens)] = key
    pytest.fail("no two of 2,000 ids share four digits")


def read_id(tree: Tree) -> str:
    from harnesses.tree import tree_id

    return tree_id(tree)


def test_a_tag_is_annotated_and_given_once(library: Library) -> None:
    assert library.tag("beta1", "frozen-1", "62 of 100 on test") == "frozen-1"
    tag = git(where(library), "rev-parse", "frozen-1")
    assert library.tag("beta1", "frozen-1", "said differently") == "frozen-1"
    assert git(where(library), "rev-parse", "frozen-1") == tag
    assert git(where(library), "cat-file", "-t", "frozen-1") == "tag"
    assert "62 of 100 on test" in git(where(library), "cat-file", "tag", "frozen-1")
    assert library.tags() == {"frozen-1": library.resolve("beta1")}
    assert library.get("frozen-1") == library.get("beta1")
    with pytest.raises(HarnessError, match="the name 'frozen-1' belongs to harness"):
        library.tag("alpha", "frozen-1", "another")


def test_the_same_additions_are_the_same_commits_elsewhere(library: Library, tmp_path: Path) -> None:
    twin = Library(tmp_path / "elsewhere.git")
    for seed in SEEDS:
        twin.add_seed(seed)
    assert [twin.commit_of(s) for s in SEEDS] == [library.commit_of(s) for s in SEEDS]


def test_something_else_at_the_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(HarnessError, match="expected a git repository or nothing"):
        Library(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_working_copy_can_be_a_library(tmp_path: Path) -> None:
    subprocess.run(("git", "init", "-q", str(tmp_path / "copy")), check=True)
    library = Library(tmp_path / "copy")
    assert library.get(library.add_seed("alpha")) == read_tree(seed_path("alpha"))


def test_the_users_git_settings_and_hooks_are_kept_out(tmp_path: Path) -> None:
    """A hostile set-up of git: hooks, templates, signing, no identity, and the variables of a running git hook."""
    home = tmp_path / "home"
    hooks = home / "template" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("post-commit", "reference-transaction", "update"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {home}/hook-ran\n")
        (hooks / name).chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[init]\n templateDir = {home}/template\n defaultBranch = trunk\n[core]\n hooksPath = {hooks}\n"
        "[commit]\n gpgSign = true\n[tag]\n gpgSign = true\n[i18n]\n commitEncoding = latin1\n"
    )
    other = tmp_path / "other"
    subprocess.run(("git", "init", "-q", str(other)), check=True)
    environment = {
        **os.environ,
        "HOME": str(home),
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
    }
    run = (sys.executable, "-c", WRITER, str(tmp_path / "library.git"), "4")
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (home / "hook-ran").exists()
    assert git(other / ".git", "for-each-ref") == ""
    assert len(Library(tmp_path / "library.git").lineage("beta1")) == 5


@pytest.mark.slow
def test_e12_killed_at_random_points_it_resumes_to_the_same_commits(tmp_path: Path) -> None:
    whole = tmp_path / "whole.git"
    lines = subprocess.run(
        (sys.executable, "-c", WRITER, str(whole), "25"), capture_output=True, text=True, check=True
    ).stdout
    path, chance = tmp_path / "killed.git", random.Random(12)
    for _ in range(12):
        writer = subprocess.Popen((sys.executable, "-c", WRITER, str(path), "25"), stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.2, 1.2))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        if path.exists():
            assert git(path, "fsck", "--strict", "--no-dangling") == ""
            found = Library(path)
            assert [found.get(i).id for i in found.names().values()] == list(found.names().values())
    subprocess.run((sys.executable, "-c", WRITER, str(path), "25"), capture_output=True, check=True)
    assert Library(path).lineage("beta1")[1:] == lines.split()
    assert git(path, "for-each-ref") == git(whole, "for-each-ref")


def test_an_archive_holds_a_harness_as_it_is_whatever_its_files_say_of_archives(library: Library) -> None:
    """`git archive` leaves out, and rewrites, what a .gitattributes names."""
    tree = tree_files(library.get("beta1"))
    tree["files/.gitattributes"] = b"notes.md export-ignore\n*.sh text eol=crlf\n*.txt export-subst\n"
    tree |= {"files/notes.md": b"kept", "files/run.sh": b"#!/bin/sh\ntrue\n", "files/v.txt": b"$Format:%H$\n"}
    odd = library.add(Tree(tree, {"files/run.sh"}), name="odd")
    packed = library.archive("odd")
    assert read_archive(packed).id == odd and library.archive(odd) == packed
