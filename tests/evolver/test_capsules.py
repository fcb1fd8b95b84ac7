"""A capsule on disk: whatever changes in it, in the tasks, in this program or in the image is named, and shuts it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from evolver.capsules import (
    Drifted,
    image_of,
    is_released,
    open_capsule,
    read_lock,
    verify,
    verify_machine,
    write_capsule,
)
from evolver.capsules.contents import Contents
from evolver.capsules.folder import config_of, document, read_part, round_settings
from evolver.chat import Dialect
from evolver.config import DemonstratorSpec, JudgeConfig, ModelSpec, OpenAISpec, StudentSpec
from evolver.errors import NotReady, UsageError
from evolver.freeze import Wanted, freeze
from evolver.sandboxes import open_backend
from evolver.testing import FakeSandboxes
from harnesses.capsule import Capsule, PriceList, TaskList, differences
from harnesses.harness import Environment
from tests.evolver.frozen_run import PACKAGES, config, fields, hashed_tasks, machines, promoted
from tests.evolver.test_cli import called


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released capsule; tests change copies of it."""
    lab = promoted(tmp_path_factory.mktemp("frozen") / "run")
    release = asyncio.run(freeze(lab, Wanted("beta1", "b-1"), tasks=hashed_tasks))
    assert release.verdict == "released", release.reasons
    return lab.store.path / "capsules" / "b-1"


@pytest.fixture
def copy(frozen: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(frozen, tmp_path / "b-1"))


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1, f"{path} has no {old!r}"
    path.write_text(text.replace(old, new, 1))


def test_a_capsule_opens_with_what_a_round_needs(frozen: Path) -> None:
    opened = open_capsule(frozen)
    assert opened.id == opened.capsule.id == read_lock(frozen).id
    assert opened.harness.id == opened.capsule.harness.id
    assert [task.hash for task in opened.tasks()] == [task.hash for task in hashed_tasks("select", 10)]
    assert opened.config.prices.keys() == {"gpt-x"} and opened.config.sandbox.backend == "local"
    assert opened.capsule.evidence.success.point == 0.85 and opened.capsule.evidence.attempts == 2
    assert verify(frozen) == []


# --- one change, one name ------------------------------------------------------------------------------------------

PROMPT = ["harness.files.prompt/system.md", "harness.id", "teacher.first_request_sha256"]
SIGNED, REFUSED = "release.json.capsule_id", "release.json.verdict"
BYTES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "one prompt byte": (lambda p: edited(p / "harness/prompt/system.md", "Linux", "linux"), PROMPT),
    "one price": (lambda p: edited(p / "prices.json", '"output": 2.0', '"output": 2.5'), ["prices.gpt-x.output"]),
    "the day of the prices": (lambda p: edited(p / "prices.json", '"prices_on": "2', '"prices_on": "1'), ["prices_on"]),
    "one checker": (
        lambda p: edited(p / "tasks/select-3/check.py", "print", "print  "),
        ["tasks.select-3.checker", "tasks.select-3.hash"],
    ),
    "one instruction": (lambda p: edited(p / "tasks/select-3/instruction.md", "Do", "do"), ["tasks.select-3.hash"]),
    "one setting": (lambda p: edited(p / "config.toml", "1800.0", "900.0"), ["settings.sandbox.ttl_s"]),
    "one setting more": (lambda p: edited(p / "config.toml", "seed", "lineage = 'x'\nseed"), ["settings.lineage"]),
    "the slip rate": (lambda p: edited(p / "config.toml", "0.05", "0.06"), ["teacher.model.slip_rate"]),
    "the seed": (lambda p: edited(p / "config.toml", "seed = 0", "seed = 1"), ["seed"]),
    "a comment in the config": (lambda p: edited(p / "config.toml", "seed", "# hm\nseed"), ["files.config.toml"]),
    "a space in the lock": (lambda p: edited(p / "capsule.json", '"version": 1', '"version":  1'), ["capsule.json"]),
    "a file more": (lambda p: edited_new(p / "notes.md"), ["files.notes.md"]),
    "a file less": (lambda p: (p / "tasks/select-9/check.py").unlink(), ["tasks.select-9"]),
    "how the tasks went": (lambda p: edited(p / "tasks.json", '"solved": 1', '"solved": 2'), ["files.tasks.json"]),
    "a broken config": (lambda p: edited(p / "config.toml", "seed", "seed ="), ["settings"]),
    "a broken list": (lambda p: edited(p / "tasks.json", '"carried"', '"carred"'), ["tasks"]),
    "another sign-off": (lambda p: edited(p / "release.json", 'capsule_id": "', 'capsule_id": "x'), [SIGNED]),
    "a refusal": (lambda p: edited(p / "release.json", '"verdict": "released"', '"verdict": "refused"'), [REFUSED]),
    "one rubric": (
        lambda p: edited(p / "tasks/select-3/task.toml", "weight = 1.0", "weight = 2.0"),
        ["tasks.rubrics_sha256", "tasks.select-3.hash"],
    ),
}  # fmt: skip


def edited_new(path: Path) -> None:
    path.write_text("hm")


@pytest.mark.parametrize("what", BYTES)
def test_g28_a_changed_byte_is_named(copy: Path, what: str) -> None:
    change, named = BYTES[what]
    change(copy)
    assert fields(verify(copy)) == named


def test_g28_a_drift_keeps_the_capsule_shut_and_each_is_named(copy: Path) -> None:
    for what in ("one prompt byte", "one price", "the seed"):
        BYTES[what][0](copy)
    with pytest.raises(Drifted) as refused:
        open_capsule(copy)
    assert fields(refused.value.drifts) == [*PROMPT[:2], "prices.gpt-x.output", "seed", PROMPT[2]]
    assert all(drift.field in str(refused.value) for drift in refused.value.drifts)


def test_a_file_that_may_not_run_any_more_is_a_drift(copy: Path) -> None:
    (copy / "harness/scaffold.toml").chmod(0o755)
    assert fields(verify(copy)) == ["harness.executable", "harness.id"]


def test_g42_a_changed_tool_schema_changes_the_bytes_of_the_request(copy: Path) -> None:
    edited(copy / "harness/tools/bash.toml", 'description = "', 'description = "Now: ')
    assert fields(verify(copy)) == ["harness.files.tools/bash.toml", "harness.id", "teacher.first_request_sha256"]


def test_a_harness_that_is_none_any_more_hides_no_other_drift(copy: Path) -> None:
    (copy / "harness/scaffold.toml").write_text("max_steps = 'many'")
    edited(copy / "prices.json", '"input": 1.0', '"input": 9.0')
    named = fields(verify(copy))
    assert {"harness.files.scaffold.toml", "harness", "prices.gpt-x.input"} <= set(named)
    shutil.rmtree(copy / "harness")
    assert "harness" in fields(verify(copy))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("program", "packages", "openai"), "0.1"),
        (("program", "python"), "2.7.18"),
        (("program", "constraints_sha256"), "0" * 64),
        (("program", "source", "evolver/rollout.py"), "0" * 64),
        (("program", "source", "evolver/gone.py"), "0" * 64),
        (("tasks", "checks", "devset/checks/files.py"), "0" * 64),
        (("machine", "platform"), "pdp11"),
        (("retry", "tries"), 7),
    ],
    ids=lambda value: str(value)[:40],
)
def test_g28_a_program_other_than_the_pinned_one_is_named(copy: Path, path: tuple[str, ...], value: object) -> None:
    """A capsule that was frozen by another version of this program: its lock says so."""
    lock = json.loads((copy / "capsule.json").read_text())
    place = lock
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (copy / "capsule.json").write_bytes(document(Capsule.model_validate_json(json.dumps(lock))))
    (copy / "release.json").unlink()
    assert fields(verify(copy)) == [".".join(path)]


# --- the image -----------------------------------------------------------------------------------------------------


IMAGES = ("image", "grading")  # of attempts and of their checks: one and the same here


async def machine_drifts(frozen: Path, sandboxes: FakeSandboxes) -> list[str]:
    opened = open_capsule(frozen)
    return fields(await verify_machine(opened.capsule, opened.harness.environment, sandboxes))


async def test_one_package_version_is_named(frozen: Path) -> None:
    assert await machine_drifts(frozen, machines()) == []
    for kind, name in (("deb", "bash:amd64"), ("pip", "lxml"), ("graders", "openpyxl")):
        other = machines({**PACKAGES, kind: {name: "0.1"}})
        assert await machine_drifts(frozen, other) == [f"machine.{image}.{kind}.{name}" for image in IMAGES]
    more = machines({**PACKAGES, "pip": {**PACKAGES["pip"], "torch": "2.0"}})
    assert await machine_drifts(frozen, more) == [f"machine.{image}.pip.torch" for image in IMAGES]


async def test_g40_a_rebuilt_image_and_another_back_end_are_named(frozen: Path) -> None:
    rebuilt = [f"machine.{image}.digest" for image in IMAGES]
    assert await machine_drifts(frozen, machines(digest="sha256:rebuilt")) == rebuilt
    docker = machines()
    docker.name = "docker"
    assert await machine_drifts(frozen, docker) == ["machine.backend"]
    assert docker.opened == []


async def test_a_machine_that_lists_nothing_is_not_taken_for_an_empty_one(frozen: Path) -> None:
    environment = open_capsule(frozen).harness.environment
    with pytest.raises(NotReady, match="can't list its packages"):
        await image_of(environment, FakeSandboxes())


@pytest.mark.docker
@pytest.mark.parametrize("kind", ["local", "docker"])
async def test_the_packages_of_a_real_image_are_found(kind: str, desktop_kind: object = None) -> None:

    sandboxes = open_backend("docker" if kind == "docker" else "local", spares=0)
    try:
        found = await image_of(Environment(), sandboxes)
    finally:
        await sandboxes.aclose()
    assert (len(found.deb) > 100 and "python3:amd64" in found.deb) or "python3:arm64" in found.deb
    assert found.graders["odfpy"] and found.digest


# --- opening -------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_capsule_and_one_of_another_version_are_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no capsule at"):
        open_capsule(tmp_path)
    edited(copy / "capsule.json", '"version": 1', '"version": 2')
    with pytest.raises(UsageError, match=r"capsule\.json: version"):
        open_capsule(copy)


def test_one_that_was_never_released_is_refused(copy: Path) -> None:
    (copy / "release.json").unlink()
    with pytest.raises(UsageError, match="never released"):
        open_capsule(copy)
    assert open_capsule(copy, released=False).id == read_lock(copy).id


def test_one_that_was_refused_is_not_used(copy: Path) -> None:
    BYTES["a refusal"][0](copy)
    with pytest.raises(Drifted, match=r"release\.json\.verdict: released → refused"):
        open_capsule(copy)
    assert not is_released(copy)


def contents_of(frozen: Path, teacher: ModelSpec, judge: JudgeConfig | None = None) -> Contents:
    """Those of a released capsule, under another teacher or judge."""
    opened, prices = open_capsule(frozen), read_part(frozen / "prices.json", PriceList)
    other = config(teacher=teacher, judge=judge, allow_unpriced=True)
    settings = round_settings(other, "local")
    return Contents(
        harness=opened.harness,
        settings=settings,
        config=config_of(settings, prices, frozen),
        task_list=read_part(frozen / "tasks.json", TaskList),
        tasks=opened.tasks(),
        prices=prices,
        evidence=opened.capsule.evidence,
        image=opened.capsule.machine.image,
        files={},
    )


def test_g37_no_retries_asked_for_are_no_retries_in_the_round(frozen: Path, tmp_path: Path) -> None:
    asked = OpenAISpec(kind="openai", model="gpt-x", retry_for_s=0, first_contact_s=0, timeout_s=7, concurrency=1)
    capsule = write_capsule(contents_of(frozen, asked), tmp_path / "c")
    assert open_capsule(tmp_path / "c", released=False).config.teacher == asked
    assert (capsule.teacher.model.retry_for_s, capsule.teacher.model.timeout_s) == (0, 7)


def test_how_an_endpoint_wants_its_requests_worded_is_pinned(frozen: Path, tmp_path: Path) -> None:
    plain = OpenAISpec(kind="openai", model="gpt-x")
    reasoning = Dialect(limit="max_completion_tokens", leave_out=("temperature", "top_p"))
    spec = plain.model_copy(update={"dialect": reasoning})
    usual = write_capsule(contents_of(frozen, plain), tmp_path / "usual")
    worded = write_capsule(contents_of(frozen, spec), tmp_path / "worded")
    assert open_capsule(tmp_path / "worded", released=False).config.teacher == spec
    found = {drift.field for drift in differences(usual, worded)}
    assert found - {"files.config.toml"} == {
        "teacher.model.dialect.limit", "teacher.model.dialect.leave_out", "teacher.first_request_sha256",
    }  # fmt: skip


def test_a_key_is_pinned_by_the_name_of_its_variable(
    frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sk-very-secret-123")
    spec = OpenAISpec(kind="openai", model="gpt-x", base_url="https://a.example/v1", api_key_env="A_KEY")
    capsule = write_capsule(contents_of(frozen, spec), tmp_path / "c")
    written = b"".join(path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file())
    assert b"sk-very-secret" not in written and capsule.teacher.model.key_name == "A_KEY"
    assert capsule.teacher.model.endpoint == "https://a.example/v1"


def test_a_changed_weight_of_a_student_is_named(frozen: Path, tmp_path: Path) -> None:
    (tmp_path / "student").mkdir()
    (tmp_path / "student/model.bin").write_bytes(b"weights")
    spec = StudentSpec(kind="student", checkpoint=str(tmp_path / "student"))
    capsule = write_capsule(contents_of(frozen, spec), tmp_path / "c")
    assert any(name.startswith("training/") for name in capsule.program.source)
    own = open_capsule(frozen).capsule.program.packages
    played_by = {n for n in ("torch", "transformers", "tokenizers", "peft") if find_spec(n)}
    assert played_by <= capsule.program.packages.keys() and not played_by & own.keys() and "numpy" in own
    (tmp_path / "student/model.bin").write_bytes(b"Weights")
    assert fields(verify(tmp_path / "c")) == ["teacher.model.weights.model.bin"]


def test_another_judge_and_another_prompt_of_it_are_named(frozen: Path, tmp_path: Path) -> None:
    judge = JudgeConfig(model=OpenAISpec(kind="openai", model="gpt-j", retry_for_s=3))
    capsule = write_capsule(contents_of(frozen, DemonstratorSpec(), judge), tmp_path / "c")
    assert capsule.judge is not None and open_capsule(tmp_path / "c", released=False).config.judge == judge
    edited(tmp_path / "c/capsule.json", capsule.judge.prompt_sha256, "0" * 64)
    edited(tmp_path / "c/config.toml", "max_bias = 0.1", "max_bias = 0.2")
    assert fields(verify(tmp_path / "c")) == ["judge.prompt_sha256", "judge.settings.max_bias"]


def test_a_stopped_writing_leaves_nothing_that_looks_like_a_capsule(frozen: Path, tmp_path: Path) -> None:
    whole = contents_of(frozen, DemonstratorSpec())
    short = Contents(**{**vars(whole), "tasks": whole.tasks[:-1]})  # the writing ends half-way
    with pytest.raises(ValueError, match="shorter"):
        write_capsule(short, tmp_path / "c")
    assert not (tmp_path / "c").exists()
    write_capsule(whole, tmp_path / "c")
    assert verify(tmp_path / "c") == [] and [path.name for path in tmp_path.iterdir()] == ["c"]
    with pytest.raises(UsageError, match="is there already"):
        write_capsule(whole, tmp_path / "c")


# --- commands ------------------------------------------------------------------------------------------------------


def test_capsule_verify_exits_with_1_and_names_what_drifted(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("capsule", "verify", str(copy), "--no-image")
    code, out, err = called(capsys, *words)
    assert (code, out) == (0, "") and "is as it was frozen; its image was not looked at" in err
    edited(copy / "prices.json", '"output": 2.0', '"output": 2.5')
    code, out, err = called(capsys, *words)
    assert (code, out) == (1, "prices.gpt-x.output: 2.0 → 2.5\n") and err == "1 drift\n"
    code, out, _ = called(capsys, *words, "--json")
    told = json.loads(out)
    assert code == 1 and told["drifts"] == [{"field": "prices.gpt-x.output", "pinned": 2.0, "found": 2.5}]
    assert (told["released"], told["image_unchecked"]) == (True, "not looked at")


def test_an_image_that_can_not_be_looked_at_is_not_said_to_be_as_it_was(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(copy))  # without bubblewrap there is no local sandbox
    code, out, err = called(capsys, "capsule", "verify", str(copy))
    assert (code, out) == (3, "") and "that can't be looked at: bubblewrap is missing" in err
    edited(copy / "prices.json", '"output": 2.0', '"output": 2.5')
    code, out, _ = called(capsys, "capsule", "verify", str(copy))
    assert (code, out) == (1, "prices.gpt-x.output: 2.0 → 2.5\n")


def test_capsule_diff_and_show(frozen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_capsule(contents_of(frozen, DemonstratorSpec(slip_rate=0.25)), tmp_path / "c")
    code, out, _ = called(capsys, "capsule", "diff", str(frozen), str(tmp_path / "c"), "--json")
    named = [drift["field"] for drift in json.loads(out)["differences"]]
    assert code == 0 and named == ["files.config.toml", "settings.allow_unpriced", "teacher.model.slip_rate"]
    code, out, _ = called(capsys, "capsule", "show", str(frozen))
    assert code == 0 and "slip rate 0.05" in out and "85.0 %" in out
    code, out, _ = called(capsys, "capsule", "show", str(tmp_path / "c"), "--json")
    assert json.loads(out)["released"] is False and json.loads(out)["teacher"]["model"]["slip_rate"] == 0.25
