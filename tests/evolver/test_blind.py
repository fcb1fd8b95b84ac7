"""The solver that has nothing but the instruction: what it reads out of words, and that our tasks need more."""

from __future__ import annotations

from pathlib import Path

import pytest

from devset.families import families
from evolver.blind import hand_ins
from tests.devset.trial import make_home, passes, run_check, run_script
from tests.evolver.graded_task import task


@pytest.mark.parametrize(
    ("instruction", "scripts"),
    [
        (
            "Create a text file a-b.txt in Documents that contains the single line 'Call Ann'.",
            ["mkdir -p ~/Documents; printf '%s\\n' 'Call Ann' > ~/Documents/a-b.txt"],
        ),
        (
            "Save the first 3 lines of Documents/x.log as y.txt on the Desktop.",
            [
                "mkdir -p ~/Documents; printf '%s\\n' 3 > ~/Documents/x.log",
                "mkdir -p ~/Desktop; printf '%s\\n' 3 > ~/Desktop/y.txt",
            ],
        ),
        ("Create a new folder called big-plan on the Desktop.", ["mkdir -p ~/Desktop/big-plan"]),
        ("Sort the list on my screen.", []),
    ],
)
def test_words_become_files(instruction: str, scripts: list[str]) -> None:
    assert [one.script for one in hand_ins(instruction)] == scripts


def test_a_task_that_its_words_give_away_is_solved(tmp_path: Path) -> None:
    """The measure can find something: this task asks for nothing that has to be looked up."""
    given_away = task(instruction="Write a.txt in Documents with the line 'right'.", check=WRITTEN)
    (only,) = hand_ins(given_away.instruction)
    home = make_home(given_away, tmp_path / "home")
    run_script(home, only.script)
    assert run_check(given_away, home, tmp_path)["done"]["value"] == 1.0


WRITTEN = """
from devset.checks import grade

grade({"done": [("text_is", {"path": "Documents/a.txt", "expected": ["right"]})], "kept": []})
"""


def test_g08_words_alone_solve_at_most_one_task_in_fifty(tmp_path: Path) -> None:
    solved, tried = [], 0
    for family in families().values():
        made = family.instance(0)
        for number, one in enumerate(hand_ins(made.instruction)):
            tried += 1
            home = make_home(made, tmp_path / f"{family.name}-{number}")
            assert run_script(home, one.script).returncode == 0
            if not made.feasible:
                continue  # it claims to be done, which is wrong there
            if passes(made, home):
                solved.append(made.id)
    assert tried >= len(families()), "the solver has something to say about most tasks"
    assert len(solved) <= 0.02 * len(families()), solved
