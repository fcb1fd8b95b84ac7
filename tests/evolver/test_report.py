"""The report says what the records say, and "unknown" where they say nothing."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from evolver.config import OpenAISpec, RunConfig
from evolver.errors import NotReady
from evolver.figures import forest_figure, gap_figure, save_png, seed_dots
from evolver.figures.run import figures
from evolver.gap_tables import amplification_text, gap_caption, pairs_table
from evolver.looks import GapConfig
from evolver.records import Decision, Ending, LedgerEntry
from evolver.report import harness_names, report
from evolver.report_page import page, save_pictures, write_page
from evolver.store import Store
from evolver.tables import Table, print_report, to_json, to_markdown
from tests.evolver.cards import a_card
from tests.evolver.rollouts import KEY, a_rollout
from tests.evolver.sample_run import ALPHA, BETA1, BETA2, TEACHER, ci, evaluation, gap, ledger, sample_run


def table(store: Store, title: str) -> Table:
    return next(found for found in report(store).tables if found.title.startswith(title))


def cells(found: Table, row: int) -> dict[str, str]:
    return dict(zip(found.columns, found.rows[row], strict=True))


def test_the_lineage_tells_what_was_tried_what_came_of_it_and_why(tmp_path: Path) -> None:
    lineage = table(sample_run(tmp_path / "run"), "Lineage")
    assert [row[0] for row in lineage.rows] == ["alpha", "beta1", "beta2"]
    beta1 = cells(lineage, 1)
    assert (beta1["parent"], beta1["changed"], beta1["verdict"]) == ("alpha", "T+P", "● promote")
    assert beta1["effect [95 %]"] == "+60.0 pp [+40.0, +80.0]" and beta1["measured on"] == "select, n = 24"
    assert (beta1["tokens/solved"], beta1["incumbent's"]) == (
        "1,500 [1,300, 1,800]",
        "5,200 [4,100, 6,900]",
    )
    assert cells(lineage, 2)["measured on"] == "dev x1, n = 24" and cells(lineage, 2)["verdict"] == "✕ reject"
    flips = "a task flips in 5.0 % [0.0, 10.0] of the incumbent's own repeats, 30.0 % [10.0, 50.0] across arms"
    assert flips in lineage.notes[1]
    assert "promote: confirmed on select" in lineage.notes[1] and "tools: + bash" in lineage.notes[1]


def test_a_decision_of_an_older_version_is_read_without_the_intervals_that_it_lacks(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    log = store.path / "decisions.jsonl"
    first, *rest = map(json.loads, log.read_text().splitlines())
    first |= {"flip_rate_aa": 0.05, "flip_rate_ab": None, "tokens_per_solved": 1_500}
    log.write_text("".join(json.dumps(one) + "\n" for one in (first, *rest)))
    beta1 = cells(table(Store.open(store.path), "Lineage"), 1)
    assert (beta1["tokens/solved"], beta1["incumbent's"]) == ("1,500 [no interval]", "5,200 [4,100, 6,900]")


def test_s52_the_report_says_what_second_tries_did_to_a_success(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    key = KEY.model_copy(update={"harness_id": BETA1, "model_id": TEACHER, "purpose": "race", "split": "dev"})
    for number, (solved, of) in enumerate([(True, None), (False, None), (True, "r-lost")]):
        at = key.model_copy(update={"task_id": f"t-{number}"})
        store.append(a_rollout(id=f"r-at-{number}", key=at, retry_of=of))
        store.append(a_card("b", number, solved).model_copy(update={"key": at, "rollout_id": f"r-at-{number}"}))
    [line] = [line for line in report(store).lines if line.startswith("teacher under beta1")]
    assert line.endswith("; 1 of its 4 attempts were tried again, 66.7 % without them")


def test_e35_the_report_says_why_the_search_ended(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    for reason in ("target", "plateau", "budget"):
        store.append(Ending.model_validate({"id": reason, "reason": reason, "detail": "so it was", "at": 9.0}))
        [state] = [line for line in report(store).lines if line.startswith("state:")]
        assert reason in state and state.endswith(": so it was")
        assert ("before the end" in state) is (reason == "budget")


def test_e37_the_report_shows_the_claim_against_the_root_and_the_errors_spent(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    assert "errors: 0.0200 of 0.1 spent (chance of promoting a neutral edit)" in report(store).lines
    assert not [line for line in report(store).lines if "against the root" in line]
    claimed = store.all(Decision)[0].model_copy(
        update={"id": "d-9", "candidate_id": "beta9", "cumulative": ci(0.5, 0.3, 0.7)}
    )
    store.append(claimed)
    [claim] = [line for line in report(store).lines if "against the root" in line]
    assert claim.startswith("beta1 against the root: +50.0 pp [+30.0, +70.0] of success on select")


def test_s37_unknown_figures_print_unknown_and_never_0(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    ledger_rows = {row[0]: cells(table(store, "Ledger"), i) for i, row in enumerate(table(store, "Ledger").rows)}
    assert (ledger_rows["author"]["tokens"], ledger_rows["author"]["cost"]) == ("unknown", "unknown")
    assert ledger_rows["total"]["tokens"] == "at least 2,000 (1 entry unknown)"
    assert ledger_rows["teacher"]["cost"] == "$0.00"  # known: declared free
    assert cells(table(store, "Channels"), 0)["tokens"] == "unknown"
    undecided = store.all(Decision)[1].model_copy(
        update={"id": "d-9", "candidate_id": "alpha", "tokens_per_solved": None, "looks": (), "confirmation": None}
    )
    store.append(undecided)
    row = cells(table(store, "Lineage"), 0)
    assert (row["tokens/solved"], row["effect [95 %]"], row["measured on"]) == ("unknown", "unknown", "not measured")


def test_s38_the_ledger_counts_each_entry_once_by_role_and_model(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    store.append(ledger("led-4"))
    store.append(ledger("led-4"))
    rows = [cells(table(store, "Ledger"), i) for i in range(7)]
    assert [(r["role"], r["rollouts"], r["calls"]) for r in rows] == [
        ("author", "1", "3"), ("teacher", "2", "6"), ("judge", "0", "0"), ("annotator", "0", "0"),
        ("student", "1", "3"), ("student", "0", "0"), ("total", "4", "12"),
    ]  # fmt: skip
    assert (rows[5]["model"], rows[5]["time"]) == ("training", "1 min 00 s")
    assert sum(entry.calls for entry in store.all(LedgerEntry)) == 12


def test_channels_show_calls_and_success_with_n(tmp_path: Path) -> None:
    row = cells(table(sample_run(tmp_path / "run"), "Channels"), 1)
    assert (row["harness"], row["app"], row["GUI calls"], row["terminal calls"]) == ("beta1", "calc", "41", "63")
    assert row["success by channel"] == "gui 50.0 % [20.0, 80.0] (n = 10); terminal 90.0 % [70.0, 98.0] (n = 14)"


def test_seen_and_unseen_families_are_shown_apart(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    apart = {"success_seen": ci(0.9, 0.8, 0.95, 30), "success_unseen": ci(0.5, 0.2, 0.8, 10)}
    for model in (TEACHER, "smollm2-135m"):
        made = evaluation(BETA1, model, ci(0.8, 0.7, 0.9, 40), "test")
        store.append(made.model_copy(update={"id": f"e-test-{model}", "split": "test", **apart}))
    said = "80.0 % [70.0, 90.0] (seen families 90.0 % [80.0, 95.0], n = 30; unseen 50.0 % [20.0, 80.0], n = 10)"
    lines = report(store).lines
    assert f"teacher under beta1: test {said}" in lines and "teacher under alpha: dev 30.0 % [15.0, 50.0]" in lines
    assert any(line.startswith("student of beta1") and line.endswith(f"untrained {said}") for line in lines)


def test_a_test_evaluation_of_the_teacher_is_shown_before_dev_and_a_students_never(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    tested = evaluation(BETA1, TEACHER, ci(0.8, 0.7, 0.9, 40), "test").model_copy(
        update={"id": "e-test", "split": "test"}
    )
    store.append(tested)
    rows = [cells(table(store, "Channels"), i) for i in range(2)]
    assert [(r["harness"], r["split"]) for r in rows] == [("alpha", "dev x1"), ("beta1", "test x1")]


def test_the_gap_of_teachers_and_students_stands_with_its_controls(tmp_path: Path) -> None:
    found = table(sample_run(tmp_path / "run"), "Teacher and student gap")
    assert found.title == "Teacher and student gap: beta1 (A) and beta2 (B)"
    rows = {row[0]: row[1:] for row in found.rows}
    assert rows["teacher"] == ("90.0 % [80.0, 97.0]", "85.0 % [70.0, 93.0]", "-5.0 pp [-15.0, +5.0]")
    assert rows["student"][2] == "-15.0 pp [-27.0, -3.0]"  # a negative gap is printed as plainly
    assert rows["untrained control"][:2] == ("0.0 % [0.0, 9.0]", "0.0 % [0.0, 9.0]")
    assert rows["amplification"][2] == "not defined: teacher gap's interval includes 0"
    assert (
        "40 test tasks" in found.caption
        and "student seeds: 0." in found.caption
        and "One seed per arm" in found.caption
    )


def test_amplification_is_a_ratio_with_its_interval_when_it_is_defined() -> None:
    defined = gap(teacher_gap=ci(-0.05, -0.08, -0.02), amplification=ci(3.0, 1.1, 6.0))
    assert amplification_text(defined) == "3.00 x [1.10, 6.00]"
    assert amplification_text(gap(teacher_gap=ci(None), amplification=ci(None))).startswith("not defined (")


def test_the_header_says_who_taught_and_e35_how_it_ended(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    text = "\n".join(report(store).lines)
    assert "teacher: demonstrator (scripted, slip rate 0.05)" in text and "state: done" in text
    assert "1 graded, 1 unscored" in text and "best harness: beta1" in text
    assert "student of beta1, seed 0: smollm2-135m, 240 rows, loss 2.000 → 0.200, 60 s; test 40.0 %" in text
    store.append(Ending(id="end-2", reason="budget", detail="caps.tokens = 10 is spent", at=9.0))
    assert "state: stopped before the end (budget): caps.tokens = 10 is spent" in report(store).lines
    hosted = RunConfig(teacher=OpenAISpec(kind="openai", model="gpt-x"), allow_unpriced=True)
    assert report(Store.create(tmp_path / "other", hosted)).lines[0] == "teacher: gpt-x at the default endpoint"


def test_an_empty_run_has_a_report_too(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    shown = report(store)
    assert all(found.rows == () for found in shown.tables) and "not ended" in "\n".join(shown.lines)
    assert "Nothing yet." in page(store) and to_markdown(shown).count("##") == 8


def test_a_run_that_only_measures_gaps_tells_nothing_of_a_search(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig(gap=GapConfig(pairs=(("alpha", "beta1"),))))
    titles = [found.title for found in report(store).tables]
    assert titles == ["Channels per app", "Teacher and student gap", "Ledger"]
    assert not any("false accepts" in line for line in report(store).lines)


def test_a_pipe_gets_every_cell_whole(tmp_path: Path) -> None:
    out = io.StringIO()
    print_report(report(sample_run(tmp_path / "run")), Console(file=out, width=240, no_color=True))
    text = out.getvalue()
    assert "gui 50.0 % [20.0, 80.0] (n = 10); terminal 90.0 % [70.0, 98.0] (n = 14)" in text and "\x1b" not in text
    assert "not defined: teacher gap's interval includes 0" in text


def test_markdown_and_json_hold_the_same_rows(tmp_path: Path) -> None:
    shown = report(sample_run(tmp_path / "run"))
    markdown = to_markdown(shown)
    for found in shown.tables:
        for row in found.rows:
            assert all(cell.replace("|", "\\|") in markdown for cell in row)
    data = json.loads(json.dumps(to_json(shown), allow_nan=False))
    assert data["tables"]["Lineage"][1]["candidate"] == "beta1" and len(data["tables"]["Ledger"]) == 7


def test_the_page_is_one_file_without_a_network_and_escapes_what_people_wrote(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    wrote = store.all(Decision)[0].model_copy(
        update={"id": "d-x", "candidate_id": "alpha", "reasons": ("<script>alert(1)</script>",)}
    )
    store.append(wrote)
    path = write_page(store)
    text = path.read_text()
    assert path == store.path / "report.html" and "<script>alert(1)" not in text
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="?https?:', text) and text.count("Plotly.newPlot(") == 6
    assert text.count("Taught by demonstrator (scripted, slip rate 0.05)") == 1


def test_the_gap_figure_has_both_arms_both_gaps_and_a_zero_line(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    assert seed_dots(store) == {BETA1: [0.4]}
    figure = gap_figure(gap(), harness_names(store), seed_dots(store)).to_dict()
    lines = {trace["name"]: trace for trace in figure["data"] if trace.get("name")}
    assert list(lines["A: beta1"]["y"]) == [90.0, 40.0] and list(lines["B: beta2"]["y"]) == [85.0, 25.0]
    assert [round(v, 6) for v in lines["B: beta2"]["error_y"]["arrayminus"]] == [15.0, 10.0]
    gaps = [trace for trace in figure["data"] if trace.get("xaxis") == "x2"]
    assert [trace["x"][0] for trace in gaps] == [-15.0, -5.0]
    assert [s for s in figure["layout"]["shapes"] if s["xref"] == "x2" and s["x0"] == s["x1"] == 0]


def test_a_gap_without_students_is_drawn_without_them(tmp_path: Path) -> None:
    none = ci(None)
    figure = gap_figure(gap(student_a=none, student_b=none, student_gap=none), {}, {}).to_dict()
    assert any("student gap unknown" in note["text"] for note in figure["layout"]["annotations"])


def test_the_forest_is_sorted_by_effect_and_names_each_verdict(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    figure = forest_figure(store.all(Decision), harness_names(store), 0.05).to_dict()
    assert list(figure["layout"]["yaxis"]["ticktext"]) == ["beta2 v beta1", "beta1 v alpha"]
    words = [note["text"] for note in figure["layout"]["annotations"]]
    assert "✕</span> <b>reject</b>" in words[0] and "+60.0 pp [+40.0, +80.0], select, n = 24" in words[1]
    assert {s["type"] for s in figure["layout"]["shapes"]} == {"rect", "line"}
    assert {harness_names(store)[h] for h in (ALPHA, BETA1, BETA2)} == {"alpha", "beta1", "beta2"}


@pytest.mark.browser
def test_pictures_are_written_as_png(tmp_path: Path) -> None:
    if not any(shutil.which(name) for name in ("chromium", "google-chrome", "chrome")):
        pytest.skip("needs Chromium")
    saved = save_pictures(sample_run(tmp_path / "run"), tmp_path / "pictures")
    names = ["gap-beta1-beta2", "candidates", "lineage", "path", "frontier", "channels"]
    assert [path.stem for path in saved] == names
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000 for path in saved)


def test_without_a_browser_a_picture_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-browser"))
    with pytest.raises(NotReady, match="apt-get install chromium"):
        save_png(gap_figure(gap(), {}, {}), tmp_path / "x.png")


def test_pairs_are_adjusted_for_their_number_and_an_a_a_arm_adjusts_nothing() -> None:
    gaps = [gap(student_p=0.03), gap(harness_b="c" * 40, student_p=0.02)]
    aa = gap(harness_b=gap().harness_a, student_p=0.6)
    [table] = pairs_table([*gaps, aa], {})
    assert [row[2:] for row in table.rows] == [("0.0300", "0.0400"), ("0.0200", "0.0400"), ("0.6000", "A/A")]
    assert pairs_table(gaps[:1], {}) == []
    assert "p = 0.0300, found (level 0.05)" in gap_caption(gaps[0])


def test_the_page_holds_every_figure_of_the_run_with_its_caption(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    made = list(figures(store))
    assert [shown.name for shown in made][:2] == ["gap-beta1-beta2", "candidates"]
    written = page(store)
    assert written.count("<figure>") == len(made) and all(html.escape(shown.caption) in written for shown in made)


def test_u37_the_words_of_a_figure_have_the_colour_of_all_words(tmp_path: Path) -> None:
    """A hue that a mark stands out in is too pale for text, so only a glyph carries it."""
    for shown in figures(sample_run(tmp_path / "run")):
        notes = [note.font.color for note in shown.figure.layout.annotations]
        fonts = [trace.textfont.color for trace in shown.figure.data if getattr(trace, "textfont", None)]
        assert set(notes + fonts) <= {None}, shown.name
