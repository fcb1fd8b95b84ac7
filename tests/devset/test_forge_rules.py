"""Each composition rule catches a composition that breaks it, and lets a sound one pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from devset.families import families
from devset.families.skill import Post, check, lines_post, steps
from devset.forge.rules import violations
from devset.forge.workflow import SEEDS, Edge, bound, instruction, task_of
from devset.task import GuiStep, OpenApp, Oracle, Rubric
from tests.devset.tiny_skills import executed, facts_of, flow, node, static

A, B, C = "apple", "bread", "cream"
CLICK = (GuiStep(action="left_click", summary="Click."),)


def test_sound_compositions_break_no_rule(tmp_path: Path) -> None:
    made = flow(node(A), node(B), node(C))
    assert static(made) == {} == executed(made, tmp_path)
    facts = facts_of(made, tmp_path)
    assert {"1: misplaced", "1: touched"} <= set(facts.mutants)  # wrong solutions that fit every skill
    assert facts.mutants and not any(facts.mutants.values())
    assert len(facts.equivalents) == 3 and all(facts.equivalents.values())
    assert {"1 left out", "2: twice", "1 and 3 exchanged"} <= set(facts.mutants)
    assert facts.walks[0][0] == [False] * 3 and facts.walks[1][-1] == [True] * 3
    assert sorted(p.name for p in (tmp_path / "Desktop").iterdir()) == [f"{w}.md" for w in (A, B, C)]  # as it was


def test_c1_what_a_skill_needs_must_hold_when_it_is_its_turn(tmp_path: Path) -> None:
    needs = check("text_is", path=f"Desktop/{A}.txt", expected=[A])
    made = flow(node(A), node(B, pre=(needs,)), edges=[Edge(0, 1)])
    assert executed(made, tmp_path) == {}
    lacking = check("text_is", path=f"Desktop/{A}.txt", expected=[B])
    for unsound in (flow(*made.nodes), flow(node(A), node(B, pre=(lacking,)), edges=[Edge(0, 1)])):
        said = executed(unsound, tmp_path)  # the first may come in another order
        assert said.keys() == {"C1"} and "what node 2 needs does not hold when it is its turn" in said["C1"]


def test_c1_an_oracle_that_fails_is_told(tmp_path: Path) -> None:
    failing = steps(("Write", f"echo {B} > ~/Desktop/{B}.txt; exit 3"))
    assert "the oracle of node 2 fails: exit 3" in executed(flow(node(A), node(B, terminal=failing)), tmp_path)["C1"]


def test_c2_no_skill_may_write_what_another_is_scored_by(tmp_path: Path) -> None:
    both = (f"Desktop/{B}.txt", f"Desktop/{A}.txt")
    assert "node 2 writes Desktop/apple.txt" in static(flow(node(A), node(B, writes=both)))["C2"]
    assert "C2" in static(flow(node(B, writes=both), node(A)))  # in whatever order they are listed
    folder = Post("listed", "Nothing else.", (check("folder_lists", path="Desktop", expected=[f"{A}.txt"]),))
    assert "C2" in static(flow(node(A, post=(*node(A).made.post, folder)), node(B)))


def test_c2_what_was_done_may_not_be_undone_later(tmp_path: Path) -> None:
    undoing = steps(("Write", f"echo {B} > ~/Desktop/{B}.txt; echo > ~/Desktop/{A}.txt"))
    made = flow(node(A), node(B, terminal=undoing))
    assert static(made) == {}  # it is not said, so only doing it shows
    assert executed(made, tmp_path)["C2"] == "what node 1 has done is undone by a later one"


def test_c3_a_skill_that_others_do_by_the_way_counts_for_nothing(tmp_path: Path) -> None:
    doing_both = steps(("Write", f"echo {A} > ~/Desktop/{A}.txt; echo {B} > ~/Desktop/{B}.txt"))
    said = executed(flow(node(A, terminal=doing_both), node(B)), tmp_path)
    assert said["C3"] == "node 2 counts as done without having been done"


def test_c3_only_what_depends_on_a_skill_fails_without_it(tmp_path: Path) -> None:
    needing = node(B, terminal=steps(("Write", f"test -e ~/Desktop/{A}.txt && echo {B} > ~/Desktop/{B}.txt")))
    assert (
        "without node 1, node 2 fails, which does not depend on it" in executed(flow(node(A), needing), tmp_path)["C3"]
    )
    assert executed(flow(node(A), needing, edges=[Edge(0, 1)]), tmp_path) == {}


def test_c4_nothing_is_done_before_anything_was_done(tmp_path: Path) -> None:
    done = {f"Desktop/{B}.txt": B.encode()}
    assert executed(flow(node(A), node(B, files=done)), tmp_path)["C4"] == "node 2 is done before anything was done"


def test_c5_the_oracle_changes_nothing_that_no_skill_writes(tmp_path: Path) -> None:
    def beside(path: str) -> dict[str, str]:
        writing = f"echo {B} > ~/Desktop/{B}.txt; mkdir -p ~/$(dirname {path}); echo more > ~/{path}"
        return executed(flow(node(A), node(B, terminal=steps(("Write", writing)))), tmp_path)

    assert "Documents/more.txt" in beside("Documents/more.txt")["C5"]
    assert beside(".cache/more") == {}  # what programs leave is no damage
    assert "C5" in beside(f"Desktop/{A}.md")  # a given file: the frame


def fed(source: str = "csv.lookup", target: str = "text.append", slot: str = "line"):  # type: ignore[no-untyped-def]
    known = families()
    return bound([known[source], known[target]], [Edge(0, 1, slot)], seed=3)


def test_c6_what_flows_is_a_secret_of_its_source(tmp_path: Path) -> None:
    made = fed()
    value = str(made.nodes[0].made.slots["price"])
    assert static(made) == {} and value not in instruction(made).split()
    assert value in str(made.nodes[1].made.post)  # the criteria of the second ask for it
    assert executed(made, tmp_path) == {}

    known = replace(made.nodes[0], made=replace(made.nodes[0].made, nonces={}))
    assert "no secret" in static(replace(made, nodes=(known, made.nodes[1])))["C6"]
    unfed = replace(made.nodes[1], made=made.nodes[1].stale)
    assert "does not depend on what flows" in static(replace(made, nodes=(made.nodes[0], unfed)))["C6"]
    assert "leaves nothing behind" in static(flow(node(A), node(B), edges=[Edge(0, 1, "word")]))["C6"]


def test_c6_a_fed_skill_fails_without_its_source(tmp_path: Path) -> None:
    made = fed()
    value, name = made.nodes[0].made.slots["price"], made.nodes[1].made.slots["name"]
    knowing = replace(made.nodes[1].made, terminal=steps(("Write", f"echo {value} >> ~/Desktop/{name}")))
    said = executed(replace(made, nodes=(made.nodes[0], replace(made.nodes[1], made=knowing))), tmp_path)
    assert said == {"C6": "node 2 can be done without node 1, which feeds it"}


def test_c6_g07_no_secret_is_told_or_lies_about() -> None:
    secret = {"QK47XW": "Desktop/apple.md"}
    keeping = node(A, nonces=secret)
    assert "leak" not in static(flow(keeping, node(B)))
    for telling in (
        {"wordings": ("Write {word}, not QK47XW.",)},
        {"files": {"Desktop/bread.md": b"QK47XW"}},
        {"setup": "echo QK47XW"},
    ):
        assert "a secret" in static(flow(keeping, node(B, **telling)))["leak"], telling
    assert "leak" not in static(flow(keeping, node(B, files={"Desktop/bread.md": b"AQK47XW"})))  # another word


def test_c7_where_the_order_matters_it_must_be_an_edge(tmp_path: Path) -> None:
    second = node(B, terminal=steps(("Write", f"cat ~/Desktop/{A}.txt && echo {B} > ~/Desktop/{B}.txt")))
    made = flow(node(A), second)
    assert len(made.orders()) == 2 and "another order that the edges allow" in executed(made, tmp_path)["C7"]
    stated = flow(node(A), second, edges=[Edge(0, 1)])
    assert len(stated.orders()) == 1 and executed(stated, tmp_path) == {}
    assert any(word in instruction(stated) for word in ("Then", "After", "When that is done", "in this order"))


def test_c8_what_is_scored_is_in_the_final_state() -> None:
    elsewhere = (lines_post("seen", "A passing effect.", "Desktop/passing.txt", ["x"]),)
    assert "no criterion of node 2 reads what it writes" in static(flow(node(A), node(B, post=elsewhere)))["C8"]
    over = node(B, writes=(f"Desktop/{B}.txt", f"Desktop/{A}.txt"))
    assert "written over by node 2" in static(flow(node(A), over, edges=[Edge(0, 1)]))["C8"]
    assert "C8" not in static(flow(node(A), node(B)))


def test_c9_two_skills_on_one_document_stand_in_an_order() -> None:
    reading = node(B, reads=(f"Desktop/{A}.txt",))
    assert "nodes 1 and 2 work on Desktop/apple.txt in no order" in static(flow(node(A), reading))["C9"]
    assert static(flow(node(A), reading, edges=[Edge(0, 1)])) == {}


def test_c9_a_document_is_closed_when_its_skill_is_done(tmp_path: Path) -> None:
    open_still = steps(("Write", f"echo {A} > ~/Desktop/{A}.txt; touch ~/Desktop/.~lock.{A}.txt#"))
    said = executed(flow(node(A, terminal=open_still), node(B)), tmp_path)
    assert said == {"C9": "a document is still open after its node: 1: Desktop/.~lock.apple.txt#"}


def test_c10_success_is_every_criterion_of_every_skill() -> None:
    made = flow(node(A), node(B))
    task = task_of(made)
    first, *rest = task.rubric.criteria
    assert [c.id for c in task.rubric.criteria] == ["written_1", "written_2", "frame"]

    def said(**changes: object) -> set[str]:
        return {v.rule for v in violations(made, task.model_copy(update=changes))}

    assert said() == set()
    for changed in (
        [first.model_copy(update={"required": False}), *rest],
        [first.model_copy(update={"weight": 2.0}), *rest],
        rest,
    ):
        assert said(rubric=Rubric(criteria=tuple(changed))) == {"C10"}
    assert said(check="print('{}')") == {"C10"}


def screen_only(nonces: dict[str, str], why: str = "It is on the screen only."):  # type: ignore[no-untyped-def]
    shown = node(A, terminal=None, gui=CLICK, nonces=nonces)
    return replace(shown, family=replace(shown.family, gui_only=why))


def test_c11_a_hybrid_workflow_needs_the_screen_and_the_terminal(tmp_path: Path) -> None:
    sound = flow(screen_only({"QK47XW": ""}), node(B))
    assert sound.hybrid and sound.channels == frozenset()
    assert static(sound) == {} == executed(sound, tmp_path)
    assert not flow(node(A), node(B)).hybrid  # makes no such claim
    no_secret = flow(screen_only({}), node(B))
    assert "no node has a secret that only a screen shows" in static(no_secret)["C11"]
    by_screen = flow(node(A, terminal=None), node(B, terminal=None, gui=CLICK))
    assert by_screen.hybrid and "C11" in static(by_screen)


def test_c11_a_secret_of_the_screen_that_a_terminal_can_read_is_none(tmp_path: Path) -> None:
    secret = {"QK47XW": "Desktop/apple.md"}
    shown = screen_only(secret)
    readable = replace(shown, made=replace(shown.made, files={"Desktop/apple.md": b"code: QK47XW"}))
    assert executed(flow(readable, node(B)), tmp_path)["C11"].endswith("Desktop/apple.md")


@pytest.mark.parametrize(
    "nodes",
    [
        (node(A), node(A)),
        (node(A), node(B, files={"Desktop/apple.md": b"x"})),
        (node(A), node(B, infeasible="There is no such thing.")),
        (node(A), node(B, wordings=("Write {what}.",))),
        (node(A), node(B, open=(OpenApp(command="x", window="x"),))),
        (node(A), node(B, wordings=("Do tiny.bread on the Desktop.",))),
    ],
    ids=["twice", "one file", "infeasible", "unknown slot", "opened late", "family in the words"],
)
def test_schema_is_refused_first(nodes) -> None:  # type: ignore[no-untyped-def]
    made = replace(flow(node(A), node(B)), nodes=nodes)
    task = task_of(flow(node(A), node(B))).model_copy(update={"skills": made.skills})
    words = " ".join(n.made.wordings[0] for n in nodes)
    assert "schema" in {v.rule for v in violations(made, task.model_copy(update={"instruction": words}))}


def test_a_skill_that_picks_files_by_their_kind_has_them_to_itself() -> None:
    picking = steps(("Write", f"cat ~/Desktop/*.csv; echo {B} > ~/Desktop/{B}.txt"))
    said = static(flow(node(A, files={"Desktop/one.csv": b"1"}), node(B, terminal=picking)))
    assert said == {"schema": "node 2 picks files by their kind, and Desktop/one.csv is of another"}
    assert static(flow(node(A, files={"Documents/one.csv": b"1"}), node(B, terminal=picking))) == {}


def test_edges_lead_forward() -> None:
    with pytest.raises(ValueError, match="forward"):
        flow(node(A), node(B), edges=[Edge(1, 0)])


def test_the_skills_of_workflows_are_no_instances_of_a_split() -> None:
    assert SEEDS > 10**6
    assert Oracle(terminal=fed().nodes[0].made.terminal).channels == {"terminal"}
