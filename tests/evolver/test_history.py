"""The lineage as a graph, two harnesses side by side, and the bundle as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolver.evidence import evidence
from evolver.graph import draw
from evolver.records import Interval
from evolver.store import Store
from harnesses.edit import with_changes
from harnesses.library import Library
from harnesses.tree import harness_from_files, read_tree, seed_path
from tests.evolver.made_run import PARENT, ROOT, Made
from tests.evolver.test_cli import called


def drawn(text: dict[str, str], trunk: str | None) -> list[str]:
    """`text`: node → its parents, newest first."""
    rows = draw(list(text), {node: parents.split() for node, parents in text.items()}, trunk)
    return [f"{row.rails} {row.node}" if row.node else row.rails for row in rows]


def test_a_line_of_promotions_is_one_rail() -> None:
    assert drawn({"c": "b", "b": "a", "a": ""}, "c") == ["* c", "* b", "* a"]


def test_what_was_not_promoted_stands_beside_the_trunk_and_joins_its_parent() -> None:
    assert drawn({"d": "c", "c": "a", "b": "a", "a": ""}, "c") == [
        "  * d", " /", "* c", "| * b", "|/", "* a",
    ]  # fmt: skip
    assert drawn({"d": "b", "c": "a", "b": "a", "a": ""}, "b") == [
        "  * d", " /", "  * c", "* | b", "|/", "* a",
    ]  # fmt: skip


def test_a_child_of_two_parents_reaches_both() -> None:
    assert drawn({"d": "c b", "c": "a", "b": "a", "a": ""}, "d") == ["* d", "|\\", "* | c", "| * b", "|/", "* a"]


def test_a_parent_that_is_no_candidate_is_not_drawn() -> None:
    assert drawn({"b": "gone", "a": ""}, None) == ["* b", "* a"]


@st.composite
def families(draw_from: st.DrawFn) -> dict[str, list[str]]:
    """Up to nine nodes, newest first, each with up to two older parents."""
    names = [f"n{n}" for n in range(draw_from(st.integers(1, 9)))]
    return {
        name: draw_from(st.lists(st.sampled_from(names[at + 1 :]), max_size=2, unique=True)) if names[at + 1 :] else []
        for at, name in enumerate(names)
    }


@given(families(), st.integers(0, 8))
def test_every_node_is_drawn_once_in_order_and_rails_end_at_parents(family: dict[str, list[str]], tip: int) -> None:
    nodes = list(family)
    rows = draw(nodes, family, nodes[min(tip, len(nodes) - 1)])
    assert [row.node for row in rows if row.node] == nodes
    assert all(row.rails.count("*") == (row.node is not None) for row in rows)
    lonely = {node for node in nodes if not family[node] and not any(node in parents for parents in family.values())}
    if lonely == set(nodes):
        assert all(row.rails.strip() == "*" for row in rows if row.node)


def made_run(tmp_path: Path) -> Made:
    made = Made(tmp_path / "run")
    library = Library(made.store.path / "library")
    for seed in ("alpha", "beta1", "beta2"):
        library.add_seed(seed)
    library.tag(PARENT.id, "main-1", "promoted")
    shorter = with_changes(PARENT, {"scaffold.max_steps": 8})
    library.add(shorter, name="shorter", parents=[PARENT.id], message="fewer steps")
    child = harness_from_files(shorter).id
    one = made.propose("shorter", child, why="fewer steps are enough", predicted_flips=())
    for task in range(6):
        made.attempt(PARENT.id, f"dev-{task}", task < 3)
        made.attempt(child, f"dev-{task}", task < 5)
    made.decide(one, "inconclusive", 0.3, confirmation=Interval(point=0.2, low=-0.1, high=0.5, n=4, method="m"))
    made.store.append(made.candidate("later", "e" * 40, PARENT.id))
    library.close()
    return made


def test_log_tells_the_lineage_newest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(made_run(tmp_path).store.path)
    code, out, _ = called(capsys, "log", run)
    lines = out.splitlines()
    assert code == 0 and "\x1b" not in out, "plain where it is no terminal"
    heads = [line for line in lines if "*" in line.split(" · ")[0][:4]]
    assert [line.replace("*", "").split()[0] for line in heads] == ["later", "shorter", "beta1", "alpha"]
    assert "○ undecided" in heads[0] and "◇ inconclusive  +20.0 pp [-10.0, +50.0] on select, n = 4" in heads[1]
    assert "(HEAD of main, main-1)" in heads[2] and "● promote" in heads[2] and "▲ start" in heads[3]
    assert any("llm · T · 6 rollouts · 600 tokens" in line for line in lines)
    assert any("fewer steps are enough" in line for line in lines)
    told = json.loads(called(capsys, "log", run, "--json")[1])["candidates"]
    assert [one["name"] for one in told] == ["later", "shorter", "beta1", "alpha"]
    assert told[1]["effect"]["point"] == 0.2 and told[1]["measured_on"] == "select" and told[2]["tags"][-1] == "main-1"
    assert told[1]["rollouts"] == 6 and told[1]["parents"] == [PARENT.id] and told[0]["effect"] is None


def test_diff_tells_components_the_paired_effect_and_the_patch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(made_run(tmp_path).store.path)
    code, out, _ = called(capsys, "diff", run, "beta1", "shorter")
    assert code == 0 and "changed: F" in out and "scaffold.max_steps: 20 → 8" in out
    assert "effect: +33.3 pp [" in out and "6 of 6 tasks, 6 paired attempts" in out
    assert "tasks: 2 solved more often, 0 less often" in out
    assert "fresh confirmation on select: +20.0 pp [-10.0, +50.0], n = 4" in out and "diff --git a/scaffold.toml" in out
    found = json.loads(called(capsys, "diff", run, "shorter", "beta1", "--json")[1])
    assert found["effect"]["dev"]["point"] == pytest.approx(-1 / 3) and found["effect"]["select"] is None
    assert found["components"] == ["F"] and (found["effect"]["more"], found["effect"]["less"]) == (0, 2)
    code, out, _ = called(capsys, "diff", run, "beta1", "beta2")
    assert code == 0 and "effect: none, beta2 was never played on dev" in out.replace(
        read_tree(seed_path("beta2")).id[:12], "beta2"
    )
    assert "effect: none, both are the same harness" in called(capsys, "diff", run, "beta1", PARENT.id[:8])[1]


def test_evidence_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_run(tmp_path).store.path
    code, out, _ = called(capsys, "evidence", str(run))
    assert code == 0 and out.startswith("# Evidence for a change of beta1")
    assert called(capsys, "evidence", str(run), "--from", "shorter")[1].startswith("# Evidence for a change of shorter")
    folder = tmp_path / "bundle"
    code, out, err = called(capsys, "evidence", str(run), "--out", str(folder))
    written = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert (code, out) == (0, "") and written == dict(evidence(Store.open(run), PARENT).files)
    assert f"begin with {folder / 'README.md'}" in err
    code, _, err = called(capsys, "evidence", str(run), "--out", str(folder))
    assert code == 2 and "not empty" in err
    assert ROOT not in out
