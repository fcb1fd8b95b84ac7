"""A bad config stops at once and says where, what came and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

import evolver
from evolver.config import HumanAuthor, OpenAISpec, RunConfig, StructuredAuthor, changed_fields, load_config
from evolver.errors import UsageError

DEMO = Path(evolver.__file__).parent / "demo.toml"


def load(path: Path, text: str) -> RunConfig:
    (path / "run.toml").write_text(text)
    return load_config(path / "run.toml")


def test_the_demo_config_is_valid_and_tells_the_demo() -> None:
    config = load_config(DEMO)
    assert config.root == "alpha" and config.gap.pairs == (("beta1", "beta2"),)
    assert [a.harness if isinstance(a, HumanAuthor) else a.kind for a in config.authors][:2] == ["beta1", "beta2"]
    assert any(isinstance(a, StructuredAuthor) for a in config.authors)


def test_a_run_json_round_trip_is_the_same_config() -> None:
    config = load_config(DEMO)
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
    assert changed_fields(config, config) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("race = { alfa = 0.1 }", "unknown setting 'race.alfa'; did you mean 'alpha'?"),
        ("[caps]\nteacher = { token = 3 }", "unknown setting 'caps.teacher.token'; did you mean 'tokens'?"),
        ("[[authors]]\nkind='human'\nharnes='x'\nwhy='y'", "'authors.0.harnes'; did you mean 'harness'?"),
        ("zzz = 1", "unknown setting 'zzz'; known here: allow_unpriced, archive"),
        ("race = { alpha = 2 }", "race.alpha = 2: input should be less than 0.5"),
        ("race = { attempts = [4, 2] }", "race.attempts = [4, 2]: must grow from look to look"),
        ("[teacher]\nkind = 'opnai'", "'opnai' found using 'kind' does not match any of the expected tags"),
        ("[teacher]\nkind = 'openai'", "setting 'teacher.model' is missing"),
        ("[sandbox]\nbackend = 'podman'", "sandbox.backend = 'podman': input should be 'auto', 'docker' or 'local'"),
        ("[tasks]\ndev = -1", "tasks.dev = -1: input should be greater than or equal to 0"),
        ("[tasks]\ndev = 0", "0 tasks of dev leave nothing to play: name tasks in tasks.imported.dev"),
        ("seed = nan", "seed = nan: "),
        ("[prices]\nm = { input = inf, output = 1 }", "prices.m.input = inf: input should be a finite number"),
        ("seed =", "is not valid TOML"),
    ],
)
def test_a_bad_file_names_field_value_and_expectation(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    assert says in str(error.value) and "run.toml" in str(error.value) and "\n" not in str(error.value)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"lineage = '\xe4'")
    for name, says in (("none.toml", "No such file"), ("", "Is a directory"), ("latin.toml", "not UTF-8")):
        with pytest.raises(UsageError, match=says):
            load_config(tmp_path / name)


def test_s56_a_secret_in_the_config_is_refused_and_never_shown(tmp_path: Path) -> None:
    for text in ("api_key = 'sk-hush'", "base_url = 'https://me:sk-hush@host/v1'", "api_key_env = 'sk-hush'"):
        with pytest.raises(UsageError) as error:
            load(tmp_path, f"[teacher]\nkind = 'openai'\nmodel = 'm'\n{text}")
        assert "sk-hush" not in str(error.value) and "teacher." in str(error.value)


def test_a_hosted_teacher_with_a_price_is_fine(tmp_path: Path) -> None:
    text = "[teacher]\nkind='openai'\nmodel='m'\nbase_url='http://127.0.0.1:8000/v1'\n[prices]\nm={input=1,output=2}"
    config = load(tmp_path, text)
    assert isinstance(config.teacher, OpenAISpec) and config.prices["m"].output == 2


def test_paths_are_taken_from_the_files_own_folder(tmp_path: Path) -> None:
    config = load(tmp_path, "root = './mine'\n[[authors]]\nkind='human'\nharness='trees/b'\nwhy='w'")
    first = config.authors[0]
    assert config.root == str(tmp_path / "mine")
    assert isinstance(first, HumanAuthor) and first.harness == str(tmp_path / "trees/b")
