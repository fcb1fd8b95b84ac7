"""Mirrors a run into MLflow (SQLite): one MLflow run per evaluation and per distillation, off the hot path.

The store stays the truth: a background thread follows it and logs what MLflow lacks, so a resumed run adds no
duplicates and what a child process wrote is there too. View with `mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from evolver.records import Candidate, Decision, Distillation, Evaluation, Interval, Record
from evolver.store import Store

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

CLOSE_S = 30.0
RECORD_TAG = "evolver.record_id"


def tracking_uri(run_dir: Path) -> str:
    return f"sqlite:///{run_dir.resolve() / 'mlflow.db'}"


class MlflowObserver:
    """Starts its thread (and imports MLflow) at the first record worth logging. `trouble` is told what went wrong."""

    def __init__(self, run_dir: Path, trouble: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._trouble = trouble
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def on_record(self, record: Record) -> None:
        if isinstance(record, Evaluation | Distillation | Decision):
            self._start()

    def progress(self, text: str, done: int, total: int, detail: Mapping[str, JsonValue]) -> None:
        """MLflow is shown results only."""

    def close(self) -> None:
        """Waits a bounded time for what is missing; the next run of the same directory completes the rest."""
        store = Store.open(self._run_dir)
        if self._thread is None and not store.all(Evaluation) and not store.all(Distillation):
            return
        self._stopping = True
        thread = self._start()
        thread.join(CLOSE_S)
        if thread.is_alive():
            self._trouble(f"MLflow needs more than {CLOSE_S:.0f} s: the next run of {self._run_dir} completes its copy")

    def _start(self) -> threading.Thread:
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="mlflow", daemon=True)
            self._thread.start()
        return self._thread

    def _follow(self) -> None:
        try:
            mirror = Mirror(self._run_dir)
            last = False
            while not last:
                self._wake.wait()
                self._wake.clear()
                last = self._stopping
                mirror.sync()
        except Exception as error:  # noqa: BLE001 - best effort: the run goes on without its copy
            why = str(error).partition("\n")[0]
            self._trouble(f"MLflow copy stopped ({type(error).__name__}: {why}); the run directory has everything")


class Mirror:
    """The MLflow side: one experiment per lineage, in one SQLite file of the run directory."""

    def __init__(self, run_dir: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("DO_NOT_TRACK", "true")
        from mlflow.tracking import MlflowClient

        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self._store = Store.open(run_dir)
        self._client: MlflowClient = MlflowClient(tracking_uri=tracking_uri(run_dir))
        name = self._store.config.lineage
        found = self._client.get_experiment_by_name(name)
        location = (run_dir.resolve() / "mlflow-artifacts").as_uri()
        self._experiment = found.experiment_id if found else self._client.create_experiment(name, location)
        runs = self._client.search_runs([self._experiment], max_results=50_000)
        self._runs = {run.data.tags[RECORD_TAG]: run.info for run in runs if RECORD_TAG in run.data.tags}
        self._done = {run.data.tags[RECORD_TAG] for run in runs if run.info.status == "FINISHED"}

    def sync(self) -> None:
        """Logs every evaluation and distillation that is missing or half logged, then the verdicts."""
        decisions = self._store.all(Decision)  # read first: what they rest on is then among the evaluations
        for evaluation in self._store.all(Evaluation):
            if evaluation.id not in self._done:
                self._log(evaluation.id, f"{evaluation.purpose} {evaluation.harness_id[:8]}", evaluation)
        for distillation in self._store.all(Distillation):
            if distillation.id not in self._done:
                self._log(distillation.id, f"distil {distillation.teacher_harness[:8]}", distillation)
        for decision in decisions:
            if decision.id not in self._done:
                self._tag_verdict(decision)
                self._done.add(decision.id)

    def _log(self, record_id: str, title: str, record: Evaluation | Distillation) -> None:
        from mlflow.entities import Metric, Param

        if record_id not in self._runs:
            tags = {RECORD_TAG: record_id, **self._lineage(record)}
            self._runs[record_id] = self._client.create_run(self._experiment, run_name=title, tags=tags).info
        run, at = (
            self._runs[record_id].run_id,
            self._runs[record_id].start_time,
        )  # a half-logged run gets the very same values again
        self._client.log_batch(
            run,
            metrics=[Metric(name, value, at, 0) for name, value in metrics(record).items()],
            params=[Param(name, value[:500]) for name, value in params(record).items()],
        )
        self._client.log_text(run, record.model_dump_json(indent=1), f"{type(record).__name__.lower()}.json")
        self._client.set_terminated(run)
        self._done.add(record_id)

    def _lineage(self, record: Evaluation | Distillation) -> dict[str, str]:
        harness = record.harness_id if isinstance(record, Evaluation) else record.teacher_harness
        tags = {"kind": type(record).__name__.lower(), "harness_id": harness, "evolver.run_id": self._store.run_id}
        for candidate in self._store.all(Candidate):
            if candidate.harness_id == harness:
                tags |= {"harness": candidate.name, "parents": ",".join(candidate.parents), "author": candidate.author}
        return tags

    def _tag_verdict(self, decision: Decision) -> None:
        for evaluation in self._store.all(Evaluation):
            if evaluation.harness_id == decision.candidate_harness and evaluation.id in self._runs:
                run = self._runs[evaluation.id].run_id
                self._client.set_tag(run, "verdict", decision.verdict)
                self._client.set_tag(run, "decision_id", decision.id)


def metrics(record: Evaluation | Distillation) -> dict[str, float]:
    """The numbers of a record by name; what is unknown is left out, never logged as 0."""
    found: dict[str, float | None] = {}
    for name, value in record:
        if isinstance(value, Interval):
            found |= {name: value.point, f"{name}_low": value.low, f"{name}_high": value.high}
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = value
    for row in record.channels if isinstance(record, Evaluation) else ():
        found |= {f"gui_calls/{row.app}": row.gui_calls, f"terminal_calls/{row.app}": row.terminal_calls}
    return {name: float(value) for name, value in found.items() if value is not None}


def params(record: Evaluation | Distillation) -> dict[str, str]:
    """The names and settings of a record."""
    found = {name: value for name, value in record if isinstance(value, str)}
    if isinstance(record, Distillation):
        found |= {f"recipe.{name}": json.dumps(value) for name, value in record.recipe.items()}
    return found
