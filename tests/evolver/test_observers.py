"""What a person sees on stderr, and what MLflow is told; neither can stop a run."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolver.observers.console import ConsoleObserver, describe, talk_console
from evolver.observers.mlflow import MlflowObserver, tracking_uri
from evolver.records import Decision, Ending, Evaluation
from evolver.store import Store
from tests.evolver.sample_run import ALPHA, TEACHER, card, ci, evaluation, ledger, records, sample_run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(stream: io.StringIO, steps: int, seconds_each: float) -> list[str]:
    clock = Clock()
    observer = ConsoleObserver(talk_console(stream), clock=clock)
    for done in range(steps + 1):
        observer.progress("race beta1", done, steps, {"success": 0.75, "tokens": 1_300_000})
        clock.now += seconds_each
    observer.close()
    return stream.getvalue().splitlines()


def test_without_a_terminal_there_is_one_plain_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    lines = told(io.StringIO(), 60, 1.0)
    assert len(lines) == 7
    assert lines[0].startswith("race beta1 1/60") and lines[1].startswith("race beta1 11/60")
    assert lines[2] == "race beta1 21/60 · success 0.75 · 1.3 M tokens · 39 s left"
    assert lines[-1].startswith("race beta1 60/60") and "\x1b" not in "".join(lines)


def test_a_terminal_gets_a_bar_and_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    text = "\n".join(told(Terminal(), 3, 1.0))
    assert "\x1b[2K" in text  # it redraws in place
    assert "race beta1 3/3" in text and text.count("0/3") == 1
    assert not re.search(r"\x1b\[[0-9;]*m", text)


def test_a_step_with_an_output_of_its_own_gets_no_bar_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    observer = ConsoleObserver(talk_console(stream), clock=Clock())
    observer.progress("race", 1, 3, {"success": None, "tokens": 0})
    observer.progress("distil beta1, seed 0", 0, 2, {})
    assert stream.getvalue().endswith("distil beta1, seed 0 (0 of 2 done)\n")
    written = len(stream.getvalue())
    time.sleep(0.3)
    assert len(stream.getvalue()) == written


def test_a_notice_has_no_counter_and_nothing_is_said_twice() -> None:
    out = io.StringIO()
    observer = ConsoleObserver(talk_console(out))
    for text, done in (("a notice", 1), ("a notice", 1), ("distil", 0), ("distil", 0), ("distil", 1)):
        observer.progress(text, done, 1, {})
    assert out.getvalue().splitlines() == ["a notice", "distil (0 of 1 done)", "distil (1 of 1 done)"]


def test_only_what_was_settled_is_told() -> None:
    lines = [line for line in map(describe, records()) if line]
    assert len(lines) == 10 and describe(card()) is None and describe(ledger()) is None
    assert "promote bbbbbbbbbbbb +60.0 pp [+40.0, +80.0]: confirmed on select" in lines
    assert any(line.startswith("gap B - A: teachers -5.0 pp [-15.0, +5.0], students -15.0 pp") for line in lines)


def test_names_are_said_for_ids() -> None:
    stream = io.StringIO()
    observer = ConsoleObserver(talk_console(stream), lambda: {ALPHA: "alpha"}, Clock())
    for record in records():
        observer.on_record(record)
    observer.progress("smoke aaaaaaaaaaaa", 0, 1, {"success": None})
    observer.progress("smoke aaaaaaaaaaaa", 1, 1, {"success": 1.0})
    text = stream.getvalue()
    assert "promote beta1 +60.0 pp [+40.0, +80.0]: confirmed on select" in text and "smoke alpha 1/1" in text
    assert "aaaaaaaa" not in text and "bbbbbbbb" not in text


def test_names_given_after_the_start_are_found() -> None:
    stream, known = io.StringIO(), dict[str, str]()
    observer = ConsoleObserver(talk_console(stream), lambda: known, Clock())
    known[ALPHA] = "alpha"
    observer.progress(f"distil {ALPHA[:12]}, seed 0", 0, 2, {})
    assert stream.getvalue() == "distil alpha, seed 0 (0 of 2 done)\n"


def test_e35_a_spent_budget_is_told_as_one() -> None:
    assert (
        describe(Ending(id="e", reason="budget", detail="caps.tokens = 5", at=1)) == "stopped (budget): caps.tokens = 5"
    )


def mirror(store: Store) -> list[str]:
    troubles: list[str] = []
    observer = MlflowObserver(store.path, troubles.append)
    for record in records():
        observer.on_record(record)
    observer.close()
    return troubles


@pytest.mark.slow
def test_mlflow_shows_one_run_per_evaluation_and_distillation_and_no_duplicates(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    store = sample_run(tmp_path / "run")
    assert mirror(store) == [] and mirror(store) == []
    store.append(evaluation("d" * 40, TEACHER, ci(None, n=0)))
    assert mirror(store) == []
    client = MlflowClient(tracking_uri=tracking_uri(store.path))
    experiment = client.get_experiment_by_name("main")
    runs = {run.data.tags["evolver.record_id"]: run for run in client.search_runs([experiment.experiment_id])}
    assert len(client.search_runs([experiment.experiment_id])) == len(runs) == 5
    beta1 = runs[store.all(Evaluation)[1].id]
    assert beta1.data.metrics["success"] == 0.9 and beta1.data.metrics["gui_calls/calc"] == 41
    assert beta1.data.tags["harness"] == "beta1" and beta1.data.tags["parents"] == "a" * 40
    assert beta1.data.tags["verdict"] == "promote" and beta1.info.status == "FINISHED"
    assert runs["s-1"].data.params["recipe.epochs"] == "2"
    assert "success" not in runs[store.all(Evaluation)[3].id].data.metrics  # unknown is absent, not 0
    file = client.download_artifacts(beta1.info.run_id, "evaluation.json")
    assert json.loads(Path(file).read_text())["id"] == beta1.data.tags["evolver.record_id"]


@pytest.mark.slow
def test_a_half_logged_run_is_completed_by_the_next(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    store = sample_run(tmp_path / "run")
    assert mirror(store) == []
    client = MlflowClient(tracking_uri=tracking_uri(store.path))
    experiment = client.get_experiment_by_name("main").experiment_id
    one = client.search_runs([experiment])[0]
    client.update_run(one.info.run_id, status="RUNNING")
    assert mirror(store) == []
    runs = client.search_runs([experiment])
    assert len(runs) == 4 and {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.slow
def test_a_broken_mlflow_store_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    (store.path / "mlflow.db").write_bytes(b"this is no database" * 100)
    troubles = mirror(store)
    assert len(troubles) == 1 and "MLflow copy stopped" in troubles[0]
    assert len(Store.open(store.path).all(Decision)) == 2


def test_mlflow_is_not_imported_until_it_is_needed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from evolver.observers.mlflow import MlflowObserver;"
        "from evolver.config import RunConfig; from evolver.store import Store;"
        f"p = Path({str(tmp_path / 'run')!r}); Store.create(p, RunConfig());"
        "o = MlflowObserver(p, print); o.close(); print('mlflow' in sys.modules, (p / 'mlflow.db').exists())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]
