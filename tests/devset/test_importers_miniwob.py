"""Importing MiniWoB++ from a package of our own in its format: what becomes of a page, what is refused and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue

from devset.checks.miniwob import verdict
from devset.directory import read_task_dir, write_task_dir
from devset.importers import miniwob
from devset.importers.offer import ImportFailed
from tests.devset.small_miniwob import package

ASKED: Mapping[str, Mapping[str, JsonValue]] = {
    "click-it": {"page": "click-it", "asked": "Click the button."},
    "find-midpoint": {"page": "find-midpoint", "asked": "Find it."},
    "broken": {"page": "broken", "error": "x is not defined"},
}


def imported(root: Path) -> dict[str, miniwob.Offer]:
    return {offer.id: offer for offer in miniwob.offers(root, lambda files: ASKED)}


def test_a_page_becomes_a_task_that_names_its_source_and_what_was_changed(tmp_path: Path) -> None:
    task = imported(package(tmp_path))["miniwob-click-it"].task
    assert task is not None and task.instruction.startswith("Click the button.\n")
    assert task.channels == {"gui"} and task.witness is not None and task.witness.window == "MiniWoB click-it"
    assert "MiniWoB++ (PyPI miniwob 9.9)" in task.source and "licence: MIT License" in task.source
    assert "without time limit" in task.source and "0.9" not in task.source
    write_task_dir(task, tmp_path / task.id)
    assert read_task_dir(tmp_path / task.id) == task


def test_what_a_page_loads_is_in_its_one_file(tmp_path: Path) -> None:
    task = imported(package(tmp_path))["miniwob-click-it"].task
    assert task is not None
    page = task.witness_files["page.html"].decode()
    assert "../" not in page.partition("<body>")[0].replace("'../common/pictures/'", "").replace(
        '"../common/pictures/', ""
    )
    assert page.count("data:image/png;base64,") == 4  # in the style, in the body, and two that a script may name
    assert page.count('<script nonce="@SECRET@">') == 2 and page.count("<script>") == 1  # the one in a string
    assert (
        page.index("core.startEpisodeReal = ")
        < page.index("one episode, from a fixed seed")
        < page.index("var genProblem")
    )
    assert page.count("</script>") == 2, "a script that writes of scripts does not end where it does"


def test_s48_a_page_has_its_own_seed_no_clock_and_no_time_limit(tmp_path: Path) -> None:
    found = imported(package(tmp_path))
    pages = {name: offer.task.witness_files["page.html"].decode() for name, offer in found.items() if offer.task}
    assert "Math.seedrandom('click-it')" in pages["miniwob-click-it"]
    assert "Math.seedrandom('find-midpoint')" in pages["miniwob-find-midpoint"]
    for page in pages.values():
        assert "Date.UTC(2020, 0, 15, 12)" in page and "core.EPISODE_MAX_TIME = day" in page


def test_g17_nothing_that_decides_lies_where_the_agent_sees_it(tmp_path: Path) -> None:
    task = imported(package(tmp_path))["miniwob-click-it"].task
    assert task is not None
    assert not task.exec_files and not task.hidden_files and not task.setup and not task.open
    for place in ("localStorage", "sessionStorage", "document.cookie", "indexedDB"):
        assert place not in (Path(miniwob.__file__).parent / "miniwob_page.js").read_text()
    assert b"@SECRET@" in task.witness_files["page.html"], "the secret is drawn where the page is shown"


def test_every_other_page_is_listed_with_its_reason(tmp_path: Path) -> None:
    reasons = {name: offer.reasons for name, offer in imported(package(tmp_path)).items() if offer.task is None}
    assert reasons.pop("miniwob-broken") == ("its page fails: x is not defined",)
    assert reasons.pop("miniwob-silent") == ("its page asks for nothing",)
    assert reasons.pop("miniwob-chase-circle") == (miniwob.TIMING,)
    assert reasons.pop("miniwob-flight-aa") == ("its frames need a web server",)
    (strange,) = reasons.pop("miniwob-strange")
    assert strange.startswith("malformed: ") and "strange.html: loads no core/core.js" in strange
    (linked,) = reasons.pop("miniwob-linked")
    assert "leads out of" in linked
    assert not reasons


def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match=r"no core/core.js and miniwob/ in it"):
        list(miniwob.offers(tmp_path, lambda files: {}))


def test_the_html_folder_alone_says_no_version(tmp_path: Path) -> None:
    html = package(tmp_path) / "miniwob/html"
    next((tmp_path / "site").glob("*.dist-info/METADATA")).unlink()
    task = imported(html)["miniwob-click-it"].task
    assert task is not None and "of unknown version" in task.source and "licence: not stated" in task.source


SHOWN = {"page": "click-it", "asked": "Click the button."}


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (None, 0.0),
        ([SHOWN], 0.0),
        ([SHOWN, {"reward": 1}], 1.0),
        ([SHOWN, {"reward": -1}], 0.0),
        ([SHOWN, {"reward": 0.45}], 0.5),
        ([SHOWN, {"reward": -1}, {"reward": 1}], 0.0),
        ([SHOWN, {"error": "a file does not load"}, {"reward": 0.95}], 1.0),
    ],
)
def test_the_first_reward_counts_clipped_to_0_and_1(
    tmp_path: Path, said: list[dict[str, JsonValue]] | None, value: float
) -> None:
    (tmp_path / "expected.json").write_text(json.dumps({"asked": "Click the button.", "full": 0.9}))
    if said is not None:
        (tmp_path / ".witness").write_text("".join(json.dumps(line) + "\n" for line in said))
    assert verdict(tmp_path, tmp_path)[0] == pytest.approx(value)


def test_s40_a_page_that_asks_for_something_else_is_unscored(tmp_path: Path) -> None:
    (tmp_path / "expected.json").write_text(json.dumps({"asked": "Click the button.", "full": 1}))
    (tmp_path / ".witness").write_text(json.dumps({"asked": "Click the link."}) + '\n{"reward": 1}\n')
    with pytest.raises(ValueError, match=r"the page asked 'Click the link.', the task 'Click the button.'"):
        verdict(tmp_path, tmp_path)
