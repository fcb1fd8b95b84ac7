"""Grades an imported MiniWoB page by what it told its witness: `.witness` in the frozen home, not the agent's file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

WITNESSED = ".witness"


def verdict(home: Path, gt: Path) -> tuple[float, str]:
    """(value, explanation): the reward of the page's first episode, clipped to 0..1, where `full` of it is 1.

    Raises ValueError when the page asked for something else than the task does, which is nobody's failure but ours.
    """
    expected = json.loads((gt / "expected.json").read_text(encoding="utf-8"))
    path = home / WITNESSED
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    said = [json.loads(line) for line in lines if line]
    asked = next((one["asked"] for one in said if "asked" in one), None)
    if asked is None:
        return 0.0, "no page was shown"
    if asked != expected["asked"]:
        raise ValueError(f"the page asked {asked!r}, the task {expected['asked']!r}")
    reward = next((one["reward"] for one in said if "reward" in one), None)
    if reward is None:
        return 0.0, "the episode has not ended"
    return min(1.0, max(0.0, reward / expected["full"])), f"the page gave {reward:g}"


def main() -> None:
    value, explanation = verdict(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(json.dumps({"reward": {"value": value, "explanation": explanation}}) + "\n")
