"""Leave-one-out removal: every component goes once, alone, with what only it needed."""

from __future__ import annotations

from harnesses.diff import diff
from harnesses.edit import with_changes
from harnesses.harness import Harness
from harnesses.removals import removals, sections
from harnesses.tree import Tree, harness_from_files, read_tree, seed_path, tree_files

BETA2 = read_tree(seed_path("beta2"))


def rich() -> Harness:
    """beta2 with a hook, a program tool, notes, a headed prompt, an apt package and a host."""
    tree = tree_files(harness_from_files(with_changes(BETA2, {"environment.apt": ["jq"]})))
    tree["files/tidy.sh"] = tree["files/look.py"] = b"#!/bin/sh\n"
    tree["prompt/notes/bash.md"] = b"Quote paths.\n"
    tree["prompt/system.md"] = b"# Work\n\nDo it.\n\nAll of it.\n\n# End\n\nSay so.\n"
    tree["tools/look.toml"] = (
        b'kind = "program"\ndescription = "looks"\nentry = "files/look.py"\n[parameters]\ntype = "object"\n'
    )
    tree["scaffold.toml"] += b'\n[[hooks]]\nat = "start"\nentry = "files/tidy.sh"\n'
    tree["environment.toml"] += b'network = "allowlist"\nallowlist = ["example.org"]\n'
    return harness_from_files(Tree(dict(tree)))


def test_every_component_is_taken_away_once_and_names_say_which() -> None:
    names = [removal.name for removal in removals(rich())]
    assert names == [
        "observation-text", "observation-image", "screenshots-kept", "history", "hook-tidy-sh", "tool-a11y-tree",
        "tool-bash", "tool-computer-use", "tool-look", "note-bash", "system-1-work-do-it-all", "system-2-end-say-so",
        "pip-openpyxl", "pip-python-pptx", "pip-python-docx", "apt-jq", "host-example-org",
    ]  # fmt: skip


def test_a_removal_changes_one_component_and_adds_nothing() -> None:
    whole = rich()
    for removal in removals(whole):
        left = harness_from_files(removal.tree)
        changes = diff(whole, left).changes
        assert len(left.files) <= len(whole.files) and len(changes) <= 3, (removal.name, changes)
        assert not any(": + " in change for change in changes), (removal.name, changes)
        assert len({left.id, whole.id}) == 2


def test_programs_go_with_what_alone_called_them_and_notes_with_their_tool() -> None:
    left = {removal.name: set(harness_from_files(removal.tree).files) for removal in removals(rich())}
    gone = {name: set(rich().files) - files for name, files in left.items()}
    assert gone["hook-tidy-sh"] == {"files/tidy.sh"}
    assert gone["tool-look"] == {"tools/look.toml", "files/look.py"}
    assert gone["tool-bash"] == {"tools/bash.toml", "prompt/notes/bash.md"}
    assert gone["history"] == set()


def test_nothing_that_would_leave_no_harness_is_proposed() -> None:
    alpha = read_tree(seed_path("alpha"))
    names = [removal.name for removal in removals(alpha)]
    assert "tool-computer-use" not in names and len(names) == len(set(names)) == 6


def test_a_prompt_is_cut_at_its_headings_else_at_its_paragraphs() -> None:
    assert sections("a\nb\n\nc\n\n\nd\n") == ["a\nb", "c", "d"]
    assert sections("intro\n\n# One\n\nx\n\ny\n\n## Two\nz\n") == ["intro", "# One\n\nx\n\ny", "## Two\nz"]
