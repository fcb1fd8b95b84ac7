"""A harness tree: the round trip, the id that git itself gives, and what every kind of bad tree says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harnesses.tree import (
    SEEDS,
    HarnessError,
    Tree,
    harness_from_files,
    read_tree,
    seed_path,
    tree_files,
    write_tree,
)

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="/\\"), min_size=1, max_size=12
)
PATHS = st.lists(NAMES.filter(lambda n: n.lower() not in (".", "..", ".git")), min_size=1, max_size=4).map("/".join)


def seed(name: str = "beta1") -> Tree:
    return tree_files(read_tree(seed_path(name)))


def git_id(path: Path) -> str:
    """What git says is the id of a directory, with every file added whatever it is called."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*words: str) -> str:
        return subprocess.run(
            ("git", *words), cwd=path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    git("init", "-q")
    git("-c", "core.autocrlf=false", "add", "--all", "--force", ".")
    return git("write-tree").strip()


@st.composite
def programs(draw: st.DrawFn) -> Tree:
    """Arbitrary files under files/, some executable, none at a path where another needs a directory."""
    wanted = draw(st.dictionaries(PATHS, st.binary(max_size=60), max_size=6))
    kept: dict[str, bytes] = {}
    for path, data in wanted.items():
        if not any(p == path or p.startswith(path + "/") or path.startswith(p + "/") for p in kept):
            kept[path] = data
    executable = [path for path in kept if draw(st.booleans())]
    return Tree({f"files/{p}": d for p, d in kept.items()}, [f"files/{p}" for p in executable])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs())
def test_round_trip_keeps_every_byte_and_mode_and_the_id_is_gits(
    tmp_path_factory: pytest.TempPathFactory, extra: Tree
) -> None:
    harness = harness_from_files(Tree({**seed(), **extra}, extra.executable))
    where = tmp_path_factory.mktemp("harness")
    write_tree(harness, where)
    again = read_tree(where)
    assert again == harness
    assert tree_files(again) == {**seed(), **extra}
    assert tree_files(again).executable == extra.executable
    assert git_id(where) == harness.id


@pytest.mark.parametrize("name", SEEDS)
def test_seeds_are_valid_and_their_prompts_short(name: str) -> None:
    harness = read_tree(seed_path(name))
    assert harness.scaffold.max_steps == 20 and harness.scaffold.window_tokens == 32_768
    assert 60 <= len(harness.prompt.system.split()) <= 115
    assert harness.channels == ({"gui"} if name == "alpha" else {"gui", "terminal"})
    assert harness.scaffold.observation.text == {"alpha": "none", "beta1": "marks", "beta2": "tree"}[name]


def test_e39_an_ignore_file_hides_nothing(tmp_path: Path) -> None:
    where = tmp_path / "tree"
    write_tree(read_tree(seed_path("beta1")), where)
    (where / "files").mkdir()
    (where / "files" / "state.txt").write_text("kept between attempts")
    (where / "files" / ".gitignore").write_text("*\n")
    harness = read_tree(where)
    assert {"files/state.txt", "files/.gitignore"} <= harness.files.keys()
    assert harness.id == git_id(where)


def test_e42_nested_files_and_modes_are_in_the_id(tmp_path: Path) -> None:
    base = Tree({**seed(), "files/a/b/c.py": b"1"}, [])
    ids = {
        harness_from_files(base).id,
        harness_from_files(Tree({**base, "files/a/b/c.py": b"2"}, [])).id,
        harness_from_files(Tree(base, ["files/a/b/c.py"])).id,
        harness_from_files(seed()).id,
    }
    assert len(ids) == 4


@pytest.mark.parametrize("target", ["scaffold.toml", "/etc/passwd", "."])
def test_e42_symbolic_links_are_refused(tmp_path: Path, target: str) -> None:
    where = tmp_path / "tree"
    write_tree(read_tree(seed_path("beta1")), where)
    (where / "files").mkdir()
    (where / "files" / "link").symlink_to(target)
    with pytest.raises(HarnessError, match=r"files/link: expected a plain file, got a symbolic link"):
        read_tree(where)


def test_a_fifo_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    where = tmp_path / "tree"
    write_tree(read_tree(seed_path("beta1")), where)
    (where / "files").mkdir()
    os.mkfifo(where / "files" / "pipe")
    with pytest.raises(HarnessError, match="files/pipe: expected a plain file, got a special one"):
        read_tree(where)


def test_a_working_copy_reads_like_its_files_alone(tmp_path: Path) -> None:
    where = tmp_path / "tree"
    write_tree(read_tree(seed_path("beta1")), where)
    git_id(where)  # makes the .git of a checkout
    assert (where / ".git").is_dir()
    assert read_tree(where) == read_tree(seed_path("beta1"))


def test_plain_mappings_take_the_executable_bit_from_the_first_line() -> None:
    harness = harness_from_files({**seed(), "files/run": b"#!/bin/sh\n", "files/data": b"1"})
    assert harness.executable == {"files/run"}


def test_writing_over_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(HarnessError, match="expected a new or empty directory"):
        write_tree(read_tree(seed_path("beta1")), tmp_path)


PROGRAM = b"kind = 'program'\ndescription = ''\nentry = 'files/p'\n[parameters]\n"
BAD = [
    ("scaffold.toml", b"max_steps = 0", "scaffold.toml: max_steps: expected an integer in 1..200, got 0"),
    ("scaffold.toml", b"max_steps = true", "scaffold.toml: max_steps: expected an integer in 1..200, got True"),
    ("scaffold.toml", b"max_steps = '9'", "scaffold.toml: max_steps: expected an integer in 1..200, got '9'"),
    ("scaffold.toml", b"max_stps = 9", "scaffold.toml: max_stps: unknown field, did you mean 'max_steps'?"),
    (
        "scaffold.toml",
        b"[observation]\ntext = 'mark'",
        "observation.text: expected one of 'none', 'marks', 'tree', got 'mark'",
    ),
    ("scaffold.toml", b"[sampling]\ntemperature = nan", "sampling.temperature: expected a number in 0..2, got nan"),
    ("scaffold.toml", b"[sampling]\ntop_p = 0", "sampling.top_p: expected a number > 0 and <= 1, got 0"),
    ("scaffold.toml", b"max_steps = ", "scaffold.toml: expected TOML: "),
    ("scaffold.toml", b"\xff", "scaffold.toml: expected UTF-8 text, got a byte 0xff"),
    ("scaffold.toml", b"[[hooks]]\nat = 'start'", "scaffold.toml: hooks.0.entry: missing; expected text"),
    (
        "scaffold.toml",
        b"[[hooks]]\nat = 'start'\nentry = 'x.sh'",
        "expected the path of a program under files/, got 'x.sh'",
    ),
    ("environment.toml", b"pip = ['x; rm -rf /']", "environment.toml: pip.0: expected text matching"),
    ("environment.toml", b"apt = ['-oDebug=1']", "environment.toml: apt.0: expected text matching"),
    ("environment.toml", b"screen = [1, 2, 3]", "environment.toml: screen: expected a list of 2 values, got [1, 2, 3]"),
    (
        "environment.toml",
        b"image = 'terminal'",
        "image: expected 'desktop' for the tool 'computer_use', got 'terminal'",
    ),
    (
        "environment.toml",
        b"[limits]\npids = 1",
        "environment.toml: limits.pids: expected an integer in 64..8192, got 1",
    ),
    (
        "tools/bash.toml",
        b"kind = 'shell'\ndescription = ''",
        "expected one of 'computer_use', 'bash', 'a11y_tree', 'program'",
    ),
    (
        "tools/bash.toml",
        b"name = 'sh'\nkind = 'bash'\ndescription = ''",
        "name: expected 'bash' (the file's name), got 'sh'",
    ),
    ("tools/b.toml", b"kind = 'bash'\ndescription = ''", "kind: expected one bash tool, got b and bash"),
    (
        "tools/p.toml",
        b"kind = 'program'\ndescription = ''",
        "tools/p.toml: a program tool needs `entry` and `parameters`",
    ),
    (
        "tools/computer_use.toml",
        b"kind = 'computer_use'\ndescription = ''\nactions = ['fly']",
        "actions must be some of key, type",
    ),
    ("tools/readme.md", b"", "tools/readme.md: unknown file; expected scaffold.toml"),
    ("scafold.toml", b"", "scafold.toml: unknown file; expected scaffold.toml"),
    ("prompt/task.md", b"do it", "prompt/task.md: expected {instruction} exactly once, got it 0 times"),
    ("prompt/notes/bsh.md", b"", "prompt/notes/bsh.md: expected the name of a tool (bash, computer_use), got 'bsh'"),
    ("files/../x", b"", "'files/../x': expected a relative path of plain names"),
    ("/etc/x", b"", "'/etc/x': expected a relative path of plain names"),
    ("files/.git/config", b"", "'files/.git/config': expected a relative path of plain names"),
    ("files/.GIT/config", b"", "'files/.GIT/config': expected a relative path of plain names"),
    ("scaffold.toml/x", b"", "'scaffold.toml/x': expected a relative path of plain names"),
    ("files/big", b"x" * 4_000_001, "expected at most 500 files and 4,000,000 bytes"),
    # what is made to break the reader
    ("files/" + "a/" * 30 + "x", b"", "expected at most 20 folders deep, got 32"),
    ("scaffold.toml", b"a = " + b"[" * 100_000, "scaffold.toml: expected TOML, got it nested too deeply"),
    ("scaffold.toml", b".".join([b"a"] * 3_000) + b" = 1", "scaffold.toml: expected TOML, got it nested too deeply"),
    ("scaffold.toml", b"max_steps = " + b"9" * 5_000, "scaffold.toml: expected TOML: "),
    ("tools/p.toml", PROGRAM + b"type = 5\n", "expected a JSON schema: $.type: 5 is not valid"),
    ("tools/p.toml", PROGRAM + b"type = 'object'\ndefault = nan\n", "expected a JSON schema: Out of range"),
    ("tools/p.toml", PROGRAM + b"type = 'object'\n[parameters.properties.a]\ntype = 'strng'\n", "'strng' is not valid"),
    ("tools/p.toml", PROGRAM + b"[parameters.properties.a]\ntype = 'string'\n", "expected type = 'object', got None"),
]


@pytest.mark.parametrize(("path", "data", "said"), BAD, ids=[f"{path}-{n}" for n, (path, _, _) in enumerate(BAD)])
def test_a_bad_tree_names_file_field_value_and_expectation(path: str, data: bytes, said: str) -> None:
    with pytest.raises(HarnessError) as caught:
        harness_from_files({**seed(), path: data})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["scaffold.toml", "environment.toml", "prompt/system.md", "prompt/task.md"])
def test_a_missing_file_is_named(path: str) -> None:
    files = seed()
    del files[path]
    with pytest.raises(HarnessError, match=f"{path}: missing"):
        harness_from_files(files)


def test_a_harness_without_tools_or_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="expected at least one tool"):
        harness_from_files({p: b for p, b in seed().items() if not p.startswith("tools/")})
    with pytest.raises(HarnessError, match="expected the directory of a harness, found none"):
        read_tree(tmp_path / "nowhere")
    with pytest.raises(HarnessError, match="unknown seed 'gamma'; expected one of alpha, beta1, beta2"):
        seed_path("gamma")


def test_what_is_wrong_in_each_file_is_said_at_once() -> None:
    files = tree_files(read_tree(seed_path("beta1")))
    broken = {"scaffold.toml": b"max_steps = 0\n", "environment.toml": b"image =", "tools/bash.toml": b"\xff"}
    with pytest.raises(HarnessError) as refused:
        harness_from_files({**files, **broken})
    assert {line.partition(":")[0] for line in refused.value.lines} == broken.keys()
    assert str(refused.value) == "; ".join(refused.value.lines)
