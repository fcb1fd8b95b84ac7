"""The settings of a run: one TOML file, read once, kept word for word in the run directory."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator

from evolver.chat import PLAIN, Dialect
from evolver.errors import UsageError
from evolver.faults import faults
from evolver.looks import GapConfig
from evolver.parents import ArchiveConfig
from evolver.records import Finite, ImageRule, Role
from evolver.safeguards import ChecksConfig, Count, FinalConfig, GuardsConfig, Positive, Section
from evolver.taskset import ImportedConfig, TaskLimitsConfig

OPENAI_KEY = "OPENAI_API_KEY"
RESUMABLE = (
    "caps", "min_proposals", "prices", "allow_unpriced", "stalled_s", "sandbox.workers", "sandbox.spares",
    "checks.tasks", "checks.attempts", "checks.graded", "final",
)  # fmt: skip


class DemonstratorSpec(Section):
    """The scripted teacher: replays oracles of the tasks and slips at a declared rate (it is no language model)."""

    kind: Literal["demonstrator"] = "demonstrator"
    slip_rate: Annotated[float, Field(ge=0, le=1)] = 0.05


class OpenAISpec(Section):
    """Any OpenAI-compatible endpoint. The key stays in the environment variable that `api_key_env` names.

    `image_tokens` is how the model counts images (evolver.tokens): "auto" takes it from the model's name. An endpoint
    that can't be reached before any call of the run succeeded is given up after `first_contact_s`, a later outage or
    storm after `retry_for_s`. `dialect` says how it wants its requests worded (evolver.chat).
    """

    kind: Literal["openai"]
    model: Annotated[str, Field(min_length=1)]
    base_url: str | None = None
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = OPENAI_KEY
    timeout_s: Annotated[float, Field(gt=0, le=3_600)] = 120.0
    retry_for_s: Annotated[float, Field(ge=0, le=3_600)] = 60.0
    first_contact_s: Annotated[float, Field(ge=0, le=3_600)] = 5.0
    concurrency: Positive = 8
    image_tokens: ImageRule | Literal["auto"] = "auto"
    dialect: Dialect = PLAIN

    @field_validator("base_url")
    @classmethod
    def _is_a_plain_url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("must be an http:// or https:// address")
            if parts.password or parts.username:
                raise ValueError("must hold no user or password; the key goes into the variable named by api_key_env")
        return url


class StudentSpec(Section):
    """A distilled student of an earlier run, by its directory (RUN/students/ID): it plays on this machine and bills
    nobody. The harness says how it is sampled."""

    kind: Literal["student"]
    checkpoint: Annotated[str, Field(min_length=1)]


ModelSpec = Annotated[DemonstratorSpec | StudentSpec | OpenAISpec, Field(discriminator="kind")]


class JudgeConfig(Section):
    """The model that answers criteria of kind `judge`; `allow_teacher_model` lets it be the teacher's own.

    It decides promotions only after a calibration (`evolver judge calibrate`) in which at least `min_cases` known
    successes and as many known failures were judged, the lower end of Cohen's kappa reached `min_kappa`, at most
    `max_false_accept` of the known failures passed, and no channel or length was favoured by more than `max_bias`.
    """

    model: OpenAISpec
    allow_teacher_model: bool = False
    sees_screen: bool = True
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    max_tokens: Annotated[int, Field(ge=64, le=32_768)] = 4_096
    min_cases: Positive = 20
    min_kappa: Annotated[float, Field(ge=0, le=1)] = 0.6
    max_false_accept: Annotated[float, Field(ge=0, lt=1)] = 0.1
    max_bias: Annotated[float, Field(gt=0, lt=1)] = 0.1


class SandboxConfig(Section):
    """Where rollouts run: `workers` at once, `spares` machines kept warm beside them."""

    backend: Literal["auto", "docker", "local"] = "auto"
    workers: Positive = 2
    spares: Count = 1
    ttl_s: Annotated[float, Field(gt=0)] = 1_800.0


class RaceConfig(Section):
    """The race on `dev` (looks after so many attempts a task) and the fresh confirmation on `select`.

    After the first look, which every task is played for, attempts go where the outcome is open: as many in all, spread
    as (p (1 - p))^`focus` (evolver.spread; 0 = evenly). The incumbent plays along in each race until its pool, which
    all its challengers share, holds `pool` attempts a task. The looks of the race, which only screen, err with
    `screen_alpha` between them. A candidate is futile when the upper `futility_level` bound of its lead lies below
    `min_effect` (success, 0..1: the smallest lead worth looking for) and it can't be cheaper either. "Not worse and
    cheaper" = success above the incumbent's minus `margin`, at least `min_saving` of the tokens saved (40 tasks that
    all turn out alike bound a loss at 7.7 pp, 16 at 17 pp: with few tasks this way stays shut).

    What passes is confirmed at once, by at most `confirm_attempts` a task of each arm (it may end after a quarter or a
    half of them), with a one-sided error of `alpha`; `lineage_alpha` bounds the chance that the lineage ever promotes a
    neutral edit. A lead below `confirm_from` waits instead: others build on it, and when the authors are done, or the
    budget is nearly so, the most promising one is confirmed (0 = nothing waits). Every `root_every` promotions the
    newest is compared with the root. A root that solves more than `saturation` of `dev` is refused; a lineage stops at
    `target` success, or after `patience` candidates in a row without a promotion (absent: never).
    """

    attempts: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1, 2, 4)
    focus: Annotated[float, Field(ge=0, le=2)] = 1.0
    pool: Positive = 6
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.1
    screen_alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.04
    lineage_alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.1
    futility_level: Annotated[float, Field(gt=0.5, lt=1)] = 0.9
    min_effect: Annotated[float, Field(ge=0, lt=1)] = 0.03
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.08
    min_saving: Annotated[float, Field(gt=0, lt=1)] = 0.1
    confirm_attempts: Positive = 8
    confirm_from: Annotated[float, Field(ge=0, le=1)] = 0.12
    root_every: Positive = 3
    saturation: Annotated[float, Field(gt=0, le=1)] = 0.98
    target: Annotated[float, Field(gt=0, le=1)] | None = None
    patience: Positive | None = None
    guards: GuardsConfig = GuardsConfig()

    @field_validator("attempts")
    @classmethod
    def _grows(cls, attempts: tuple[int, ...]) -> tuple[int, ...]:
        if list(attempts) != sorted(set(attempts)):
            raise ValueError("must grow from look to look, as in [1, 2, 4]")
        return attempts


class AuthorSection(Section):
    """Authors are asked in the order of the config, and the first that has something to propose is taken.

    One with `every` goes first when so many candidates of others were proposed since its own last, and last before.
    """

    every: Positive | None = None


class SearchingAuthor(AuthorSection):
    """An author that changes whatever harness it is given: the incumbent, or one drawn from the archive."""

    parents: Literal["archive", "incumbent"] = "archive"


class HumanAuthor(AuthorSection):
    """A harness that a person wrote: a seed's name or a directory, and why it should be better."""

    kind: Literal["human"]
    harness: Annotated[str, Field(min_length=1)]
    why: Annotated[str, Field(min_length=1)]


class StructuredAuthor(SearchingAuthor):
    """Optuna over the knobs of its parent; proposes `n` candidates. Empty `space` = every knob it knows."""

    kind: Literal["structured"]
    n: Positive = 1
    space: tuple[str, ...] = ()


class RandomAuthor(SearchingAuthor):
    """The baseline of a search: knobs of the same space, turned at random; proposes `n` candidates."""

    kind: Literal["random"]
    n: Positive = 1
    space: tuple[str, ...] = ()


class RemovalAuthor(AuthorSection):
    """Takes away one component of the incumbent at a time: each tool, package, hook, section of a prompt and part of
    the observation, once an incumbent; `n` at most, absent = all."""

    kind: Literal["removal"]
    n: Positive | None = None


class LLMAuthor(SearchingAuthor):
    """A language model that edits the tree of its parent in a sandbox of its own; `n` proposals, failed ones included.

    What is refused goes back to it at most `max_repairs` times. `harness` is the authoring harness (a directory with a
    bash tool); absent, the one that comes with the program. Its calls are charged to the role `author` (`caps.author`).
    """

    kind: Literal["llm"]
    model: OpenAISpec
    n: Positive = 1
    max_repairs: Annotated[int, Field(ge=0, le=10)] = 2
    harness: Annotated[str, Field(min_length=1)] | None = None


AuthorConfig = Annotated[
    HumanAuthor | StructuredAuthor | RandomAuthor | RemovalAuthor | LLMAuthor, Field(discriminator="kind")
]


class DistilConfig(Section):
    """One student per seed from each of the first `max_promotions` promoted harnesses (and both of a gap pair).

    `annotator` writes reasoning for the turns to be learned that have none (evolver.annotate); the recipe must keep it.
    """

    recipe: str = "demo"
    seeds: tuple[int, ...] = (0,)
    max_promotions: Count = 2
    annotator: OpenAISpec | None = None


class Cap(Section):
    """Upper bounds; absent = none. `tokens` counts input and output."""

    tokens: Count | None = None
    cost_usd: Annotated[Finite, Field(ge=0)] | None = None
    rollouts: Count | None = None


class Caps(Cap):
    """Bounds of the whole run, and of one role each."""

    author: Cap = Cap()
    teacher: Cap = Cap()
    judge: Cap = Cap()
    annotator: Cap = Cap()
    student: Cap = Cap()

    def of(self, role: Role) -> Cap:
        cap: Cap = getattr(self, role)
        return cap


class Price(Section):
    """US dollars per million tokens."""

    input: Annotated[Finite, Field(ge=0)]
    output: Annotated[Finite, Field(ge=0)]


class RunConfig(Section):
    """All settings of a run. One whose caps buy fewer than `min_proposals` proposals does not start, and one that
    records nothing for `stalled_s` (longer than a rollout can take) is ended with exit code 5."""

    seed: int = 0
    lineage: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")] = "main"
    root: Annotated[str, Field(min_length=1)] = "alpha"
    teacher: ModelSpec = DemonstratorSpec()
    judge: JudgeConfig | None = None
    sandbox: SandboxConfig = SandboxConfig()
    tasks: TaskLimitsConfig = TaskLimitsConfig()
    race: RaceConfig = RaceConfig()
    checks: ChecksConfig = ChecksConfig()
    final: FinalConfig = FinalConfig()
    authors: tuple[AuthorConfig, ...] = ()
    archive: ArchiveConfig = ArchiveConfig()
    distil: DistilConfig = DistilConfig()
    gap: GapConfig = GapConfig()
    caps: Caps = Caps()
    min_proposals: Count = 3
    stalled_s: Annotated[float, Field(gt=0)] = 7_200.0
    prices: dict[str, Price] = Field(default_factory=dict)
    allow_unpriced: bool = False

    @model_validator(mode="after")
    def _models_have_prices(self) -> RunConfig:
        for spec in self._endpoints:
            if spec.model not in self.prices and not self.allow_unpriced:
                raise ValueError(
                    f'no price for model {spec.model!r}, so no cap could hold: add [prices."{spec.model}"] '
                    "with input and output in $ per million tokens, or set allow_unpriced = true"
                )
        return self

    @model_validator(mode="after")
    def _a_rollout_is_no_stall(self) -> RunConfig:
        if self.stalled_s <= self.sandbox.ttl_s:
            raise ValueError(f"stalled_s = {self.stalled_s:g} must be more than sandbox.ttl_s, {self.sandbox.ttl_s:g}")
        return self

    @model_validator(mode="after")
    def _looks_have_students(self) -> RunConfig:
        last, tasks = self.gap.looks[-1:], self.tasks.test
        if last and last[0].seeds > len(self.distil.seeds):
            raise ValueError(f"gap.looks wants {last[0].seeds} seeds, distil.seeds has {len(self.distil.seeds)}")
        if last and tasks is not None and not self.tasks.imported.test and last[0].tasks > tasks:
            raise ValueError(f"gap.looks wants {last[0].tasks} test tasks, tasks.test = {tasks}")
        return self

    @model_validator(mode="after")
    def _dollars_are_known(self) -> RunConfig:
        if self.race.guards.dollars and self.teacher_id not in self.prices and isinstance(self.teacher, OpenAISpec):
            raise ValueError(
                f"race.guards.dollars = {self.race.guards.dollars:g} can't be held without a price for model "
                f'{self.teacher_id!r}: add [prices."{self.teacher_id}"], or set it to 0 (off)'
            )
        return self

    @model_validator(mode="after")
    def _judge_is_not_the_teacher(self) -> RunConfig:
        if self.judge is None or self.judge.allow_teacher_model or not isinstance(self.teacher, OpenAISpec):
            return self
        one, other = (spec.model.rsplit("/", 1)[-1].lower() for spec in (self.judge.model, self.teacher))
        if one == other:
            raise ValueError(
                f"judge.model.model = {self.judge.model.model!r} is the teacher's own model, which would grade its own "
                "work: take another model, or set judge.allow_teacher_model = true"
            )
        return self

    @property
    def _endpoints(self) -> tuple[OpenAISpec, ...]:
        judge = None if self.judge is None else self.judge.model
        authors = [author.model for author in self.authors if isinstance(author, LLMAuthor)]
        return tuple(s for s in (self.teacher, judge, self.distil.annotator, *authors) if isinstance(s, OpenAISpec))

    @property
    def teacher_id(self) -> str:
        """The id that the teacher has in every record."""
        match self.teacher:
            case OpenAISpec():
                return self.teacher.model
            case StudentSpec():
                return Path(self.teacher.checkpoint).name
        return self.teacher.kind

    @property
    def key_names(self) -> tuple[str, ...]:
        """The environment variables that hold keys of this run."""
        return tuple({OPENAI_KEY, *(spec.api_key_env for spec in self._endpoints)})


def load_config(path: Path) -> RunConfig:
    """Reads a TOML file. Raises `UsageError` naming file, field, value and what was expected.

    Relative paths in it (anything with a `/`) are taken from the file's own folder.
    """
    try:
        raw = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise UsageError(f"can't read config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"config {path} is not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"config {path} is not valid TOML: {error}") from error
    config = parse_config(raw, str(path))
    root, teacher = _beside(path, config.root), config.teacher
    if isinstance(teacher, StudentSpec):
        teacher = teacher.model_copy(update={"checkpoint": _beside(path, teacher.checkpoint, always=True)})
    authors = tuple(
        a.model_copy(update={"harness": _beside(path, a.harness)})
        if isinstance(a, HumanAuthor | LLMAuthor) and a.harness is not None
        else a
        for a in config.authors
    )
    given = {split: tuple(_beside(path, f, always=True) for f in folders) for split, folders in config.tasks.imported}
    tasks = config.tasks.model_copy(update={"imported": ImportedConfig(**given)})
    return config.model_copy(update={"root": root, "teacher": teacher, "authors": authors, "tasks": tasks})


def parse_config(raw: object, source: str) -> RunConfig:
    """`raw` as a RunConfig; `source` (a file's name) leads every error. Raises `UsageError`."""
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        raise UsageError(f"{source}: {faults(RunConfig, error)}") from None


def changed_fields(old: RunConfig, new: RunConfig) -> list[str]:
    """The settings that differ, each as `field: old → new`, without those that a resumed run may change."""
    before, after = _flat(old.model_dump(mode="json")), _flat(new.model_dump(mode="json"))
    names = [n for n in sorted(before | after) if not n.startswith(RESUMABLE)]
    return [f"{n}: {before.get(n)!r} → {after.get(n)!r}" for n in names if before.get(n) != after.get(n)]


def _beside(config: Path, name: str, *, always: bool = False) -> str:
    """A relative path, taken from the config's own folder; a word without a `/` is a name unless `always`."""
    return str((config.parent / name).resolve()) if always or "/" in name else name


def _flat(value: JsonValue, path: str = "") -> dict[str, JsonValue]:
    if isinstance(value, dict) and value:
        return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{path}.{key}".lstrip(".")).items()}
    return {path: value}
