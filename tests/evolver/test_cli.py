"""The command: quick help with examples, one clear line for bad input, and nothing overwritten."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from evolver.cli import _told, app, main
from evolver.commands.experiment import _move_aside
from evolver.commands.harness import resolved
from evolver.commands.sandbox import ready_backends
from evolver.commands.talk import run_console
from evolver.config import RunConfig
from evolver.errors import UsageError
from evolver.records import Candidate
from evolver.sandboxes.doctor import Check
from evolver.store import Store
from harnesses.library import Library
from harnesses.tree import read_tree, seed_path
from tests.evolver.rollouts import KEY, a_rollout
from tests.evolver.sample_run import ALPHA, BETA1, sample_run

ROOT = Path(__file__).parents[2]


def evolver(*words: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "evolver", *words], capture_output=True, text=True, env=env, cwd=cwd or ROOT
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """One command in this process: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def commands(group: object, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command line of the tree, without its arguments."""
    yield words
    context = typer.Context(group)  # type: ignore[arg-type]
    for name in group.list_commands(context) if hasattr(group, "list_commands") else ():  # type: ignore[attr-defined]
        yield from commands(group.get_command(context, name), (*words, name))  # type: ignore[attr-defined]


def test_every_help_text_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    lines = list(commands(typer.main.get_command(app)))
    assert {("demo",), ("tasks", "admit"), ("harness", "diff"), ("sandbox", "up"), ("distil",), ("dashboard",)} <= set(
        lines
    )
    for words in lines:
        code, out, _ = called(capsys, *words, "--help")
        assert code == 0 and "xample" in out, f"evolver {' '.join(words)} --help shows no example"


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, evolver.cli\n"
        "try: evolver.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'trl', 'mlflow', 'optuna', 'openai', 'docker', 'ray', 'streamlit'}\n"
        "heavy |= {'plotly', 'scipy', 'numpy', 'duckdb'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "LOADED []" in done.stdout
    best = min(_cpu_seconds_of_help() for _ in range(3))
    assert best < 1.0, f"evolver --help took {best:.2f} s of CPU at best"


def _cpu_seconds_of_help() -> float:
    """CPU time, since a busy machine stretches the other kind."""
    before = os.times()
    evolver("--help")
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_no_words_give_help_and_an_unknown_command_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Examples:" in "".join(called(capsys)[1:])
    code, _, err = called(capsys, "demoo")
    assert code == 2 and "No such command 'demoo'" in err
    assert called(capsys, "--version")[1].strip() == version("harness-evolver")


def test_what_is_said_on_the_way_names_harnesses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    library = Library(store.path / "library")
    beta1 = library.add_seed("beta1")
    library.close()
    console = run_console(store)
    console.progress(f"train rollouts under {beta1[:12]}", 0, 3, {"success": None, "tokens": 0})
    console.progress(f"train rollouts under {beta1[:12]}", 3, 3, {"success": 1.0, "tokens": 0})
    console.close()
    assert capsys.readouterr().err == "train rollouts under beta1 3/3 · success 1.00\n"


def test_a_seed_can_be_named_in_a_run_that_never_used_it(tmp_path: Path) -> None:
    library = Library(tmp_path / "library")
    mine = library.add_seed("alpha")
    assert resolved(library, mine[:8]) == resolved(library, "alpha") == mine
    assert "beta2" not in library.names() and library.get(resolved(library, "beta2")).channels == {"gui", "terminal"}
    assert library.names()["beta2"] == read_tree(seed_path("beta2")).id
    with pytest.raises(UsageError, match="did you mean"):
        resolved(library, "beta22")


BAD_CONFIGS = {
    "typo.toml": ("[race]\nalfa = 1", "unknown setting 'race.alfa'; did you mean 'alpha'?"),
    "torn.toml": ("[race", "is not valid TOML"),
    "free.toml": ("[teacher]\nkind='openai'\nmodel='gpt-x'", "no price for model 'gpt-x'"),
    "nobody.toml": ("root = 'omega'", "harness 'omega': expected one of alpha, beta1, beta2 or a directory"),
}


@pytest.mark.parametrize("name", [*BAD_CONFIGS, "absent.toml"])
def test_a_bad_config_is_one_line_and_leaves_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, says = BAD_CONFIGS.get(name, ("", f"can't read config {tmp_path / name}: No such file or directory"))
    if text:
        (tmp_path / name).write_text(text)
    code, out, err = called(capsys, "run", str(tmp_path / name), "--out", str(tmp_path / "run"), "--backend", "local")
    if code == 3:
        pytest.skip(err.strip())
    assert code == 2 and out == "" and says in err.splitlines()[-1] and "Traceback" not in err
    assert not (tmp_path / "run" / "rollouts.jsonl").exists()


def run_with_harnesses(path: Path) -> Store:
    store = sample_run(path)
    library = Library(path / "library")
    for seed in ("alpha", "beta1", "beta2"):
        library.add_seed(seed)
    library.close()
    return store


BAD_WORDS = [
    (("report", "RUN/none"), "no run at"),
    (("gap", "RUN", "beta1", "betta2"), "did you mean"),
    (("gap", "RUN/none", "a", "b"), "no run at"),
    (("gap", "plan", "--effect", "0"), "above 0 and below 100"),
    (("propose", "RUN", "--from", "gamma", "--tree", "RUN", "--why", "w"), "gamma"),
    (("propose", "RUN", "--from", "alpha", "--tree", "RUN/none", "--why", "w"), "no harness at"),
    (("propose", "RUN", "--from", "alpha", "--tree", "RUN", "--why", "w"), "RUN: candidates.jsonl: unknown file"),
    (("tasks", "show", "files.renam-0003"), "did you mean files.rename"),
    (("tasks", "admit", "nothing-at-all"), "unknown task"),
    (("harness", "show", "omega"), "expected one of alpha, beta1, beta2"),
    (("harness", "show", "omega", "--run", "RUN"), "omega"),
    (("harness", "tag", "omega", "--run", "RUN", "--as", "x"), "omega"),
    (("show", "r-nope", "--run", "RUN"), "no rollout 'r-nope'"),
]


@pytest.mark.parametrize(("words", "says"), BAD_WORDS, ids=[" ".join(words[:2]) for words, _ in BAD_WORDS])
def test_bad_input_is_one_line_with_exit_code_2_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    path = run_with_harnesses(tmp_path / "run").path
    before = snapshot(path)
    code, out, err = called(capsys, *(word.replace("RUN", str(path)) for word in words))
    assert code == 2 and out == ""
    assert says.replace("RUN", str(path)) in err and err.startswith("evolver: ") and len(err.splitlines()) == 1
    assert snapshot(path) == before


@pytest.mark.parametrize("words", [("report", "RUN"), ("demo", "--out", "RUN"), ("gap", "RUN", "alpha", "beta1")])
def test_a_run_of_another_version_is_refused_untouched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    path = run_with_harnesses(tmp_path / "run").path
    file = path / "run.json"
    file.write_text(file.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    before = snapshot(path)
    code, _, err = called(capsys, *(word.replace("RUN", str(path)) for word in words))
    assert code == 2 and "schema version 7, this program reads version 1" in err
    assert snapshot(path) == before


def test_s49_demo_refuses_a_run_of_other_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_run(tmp_path / "run").path
    before = snapshot(path)
    code, _, err = called(capsys, "demo", "--out", str(path), "--seed", "5")
    assert code == 2 and "seed: 0 → 5" in err and "--fresh" in err and snapshot(path) == before


def test_fresh_moves_a_run_aside_and_leaves_other_folders_alone(tmp_path: Path) -> None:
    path = sample_run(tmp_path / "run").path
    before = snapshot(path)
    _move_aside(path)
    aside = next(tmp_path.glob("run.*"))
    assert not path.exists() and snapshot(aside).items() >= before.items()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="no run directory"):
        _move_aside(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("words", [("--harness", "nosuch"), ("--task", "nosuch")])
def test_a_filter_that_fits_nothing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    code, _, err = called(capsys, "rollout", "list", str(sample_run(tmp_path / "run").path), *words)
    assert code == 2 and "'nosuch'" in err


def test_errors_come_as_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capsys, "report", str(tmp_path / "none"), "--json")
    assert code == 2 and json.loads(out)["error"]["kind"] == "usage" and "no run at" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("report", "--jsn"), "No such option: --jsn"),
        (("report",), "Missing argument 'RUN'"),
        (("gap", "plan", "-k", "two"), "Invalid value for '-k'"),
        (("reprot", "runs/x"), "No such command 'reprot'"),
    ],
)
def test_words_that_no_command_takes_are_an_error_in_json_too(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    code, out, err = called(capsys, *words, "--json")
    error = json.loads(out)["error"]
    assert code == 2 and error["kind"] == "usage" and says in error["message"] and says in err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_s55_a_full_disk_met_outside_the_store_is_wrong_input_too(number: int) -> None:
    told = _told(OSError(number, os.strerror(number), "/tmp/model.safetensors"))
    assert isinstance(told, UsageError) and "disk full at /tmp/model.safetensors: free some space" in str(told)
    other = OSError(errno.EIO, "I/O error")
    assert _told(other) is other


def test_debug_shows_where_an_error_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "--debug", "report", str(tmp_path / "none"))
    assert code == 2 and "Traceback" in err and err.splitlines()[-1].startswith("evolver: no run at")


def test_report_prints_data_to_stdout_and_talk_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_run(tmp_path / "run").path
    code, out, err = called(capsys, "report", str(path))
    assert code == 0 and "Lineage" in out and "not defined: teacher gap's interval includes 0" in out
    assert f"page: {path / 'report.html'}" in err and "\x1b" not in out + err
    code, out, _ = called(capsys, "report", str(path), "--json")
    assert code == 0 and set(json.loads(out)["tables"]) >= {"Lineage", "Ledger", "Channels per app"}


def test_a_gap_is_measured_by_default_and_planned_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = run_with_harnesses(tmp_path / "run")
    _, _, default = called(capsys, "gap", str(store.path), "alpha", "betta1")
    assert "did you mean" in default
    assert called(capsys, "gap", "measure", str(store.path), "alpha", "betta1")[2] == default
    code, out, _ = called(capsys, "gap", "plan", "--effect", "12.5", "-k", "5", "-n", "200", "--json")
    assert code == 0 and json.loads(out)["What this size finds"][0]["power at 12.5 points"] == "0.93"
    code, out, _ = called(capsys, "gap", "plan", "-k", "1")
    assert code == 0 and "training noise can't be told from a gap" in out and "The sequential rule" in out


def test_reads_have_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_with_harnesses(tmp_path / "run").path
    assert len(json.loads(called(capsys, "tasks", "list", "--split", "dev", "--limit", "3", "--json")[1])["tasks"]) == 3
    assert json.loads(called(capsys, "tasks", "show", "files.rename-0003", "--json")[1])["id"] == "files.rename-0003"
    seeds = json.loads(called(capsys, "harness", "list", "--json")[1])["harnesses"]
    assert [seed["name"] for seed in seeds] == ["alpha", "beta1", "beta2"]
    found = json.loads(called(capsys, "harness", "diff", "alpha", "beta1", "--json")[1])
    assert "T" in found["components"] and "bash" in found["patch"]
    assert json.loads(called(capsys, "harness", "show", "beta1", "--json")[1])["id"] == seeds[1]["id"]
    assert json.loads(called(capsys, "rollout", "list", str(path), "--json")[1]) == {"rollouts": []}


def test_attempts_are_listed_by_the_names_of_their_harnesses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = sample_run(tmp_path / "run")
    for number, harness in enumerate((ALPHA, BETA1, "e" * 40)):
        store.append(a_rollout(id=f"r-{number}", key=KEY.model_copy(update={"harness_id": harness})))

    def listed(*words: str) -> list[str]:
        out = called(capsys, "rollout", "list", str(store.path), "--json", *words)[1]
        return [row["harness"] for row in json.loads(out)["rollouts"]]

    assert listed() == ["alpha", "beta1", "e" * 12]
    assert listed("--harness", "beta1") == listed("--harness", BETA1[:8]) == ["beta1"]


def test_propose_adds_one_candidate_and_refuses_it_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = run_with_harnesses(tmp_path / "run")
    shutil.copytree(ROOT / "harnesses" / "seeds" / "beta1", tmp_path / "mine")
    system = tmp_path / "mine" / "prompt" / "system.md"
    system.write_text(system.read_text() + "\nSave before you finish.\n")
    words = ("propose", str(store.path), "--from", "beta1", "--tree", str(tmp_path / "mine"), "--why", "saves more")
    code, out, err = called(capsys, *words)
    made = Store.open(store.path).all(Candidate)[-1]
    assert code == 0 and out == "" and "candidate mine" in err and made.components == ("P",)
    assert made.manifest.why == "saves more" and Library(store.path / "library").get(made.harness_id)
    code, _, err = called(capsys, *words)
    assert code == 2 and "proposed already" in err and len(Store.open(store.path).all(Candidate)) == 4


def test_e20_a_person_s_harness_that_carries_a_task_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = run_with_harnesses(tmp_path / "run")
    shutil.copytree(ROOT / "harnesses" / "seeds" / "beta1", tmp_path / "mine")
    (tmp_path / "mine" / "prompt" / "notes").mkdir()
    (tmp_path / "mine" / "prompt" / "notes" / "bash.md").write_text("Plan.\nIn files.rename-3001, use mv.\n")
    before = len(store.all(Candidate))
    words = ("propose", str(store.path), "--from", "beta1", "--tree", str(tmp_path / "mine"), "--why", "knows it")
    code, _, err = called(capsys, *words)
    assert code == 2 and "prompt/notes/bash.md, line 2: carries the id of a task" in err
    assert len(Store.open(store.path).all(Candidate)) == before


def test_a_tag_names_a_harness_and_again_is_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_with_harnesses(tmp_path / "run").path
    for _ in range(2):
        assert called(capsys, "harness", "tag", "beta1", "--run", str(path), "--as", "round-1")[0] == 0
    library = Library(path / "library")
    assert library.tags() == {"round-1": library.resolve("beta1")}


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    line = f"{sys.executable} -m evolver tasks list | head -n 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=ROOT)
    assert "Traceback" not in done.stderr and len(done.stdout.splitlines()) == 1


def test_doctor_names_what_is_ready_and_what_mends_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "sandbox", "doctor", "--json")
    found = json.loads(out)
    names = {check["name"] for check in found["checks"]}
    assert code == (0 if found["ready"] else 3) and set(found["ready"]) <= {"docker", "local"}
    assert {"docker daemon", "bubblewrap", "root file system", "disk space", "memory"} <= names
    assert all(check["fix"] for check in found["checks"] if not check["ok"])
    code, out, _ = called(capsys, "sandbox", "doctor")
    assert [line[0] for line in out.splitlines()[:-1]] == ["✓" if c["ok"] else "✗" for c in found["checks"]]


def test_a_backend_is_ready_when_all_it_needs_is_there() -> None:
    good = [Check(name, True, "") for name in ("docker daemon", "bubblewrap", "user namespaces", "root file system")]
    assert ready_backends(good) == ["local"]
    assert ready_backends([*good, Check("docker image", True, "")]) == ["docker", "local"]
    assert ready_backends([*good[:3], Check("root file system", False, "not built", "evolver sandbox up")]) == []
