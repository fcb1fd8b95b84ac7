"""What a set of forged tasks is to be: one TOML file that a person writes, or that a refinement round leaves."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import tomlkit
from pydantic import Field, ValidationError, model_validator

from devset.task import Channel, Strict

SINGLE = 0.6176  # of the tasks are of one app, as in the published recipe for forged tasks
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1, le=3)]


class SettingsError(ValueError):
    """A settings file that can't be read; the message names file, field, value and what was expected."""


class Target(Strict):
    """A skill of which more tasks are wanted: how many skills such a task has, and by which channel it can be done
    (None: any). Targets are drawn in proportion to `weight`."""

    skill: str
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    sizes: Annotated[tuple[Size, ...], Field(min_length=1)] = (1, 2, 3)
    channel: Channel | None = None


class Shares(Strict):
    """Where the first skill of a task comes from: the targets, whatever was seldom drawn, and the `fresh` skills."""

    targets: Share = 0.6
    coverage: Share = 0.3
    fresh: Share = 0.1

    @model_validator(mode="after")
    def _are_a_whole(self) -> Shares:
        if abs(self.targets + self.coverage + self.fresh - 1) > 1e-9:
            raise ValueError(f"the shares must be 1 together, got {self.targets + self.coverage + self.fresh:g}")
        return self


class Settings(Strict):
    """A set of tasks: `single` is the share of those in one app, `sizes` how many skills a task may have.

    At most `cap` tasks share a template (canonical path), `alone` where that is one skill by itself; every skill gets
    `floor` tasks as long as it can. `skills` are folders of skill directories beside the families; relative ones are
    taken from the file's own folder. Skills that are held out of training are left out unless `held_out`, and those
    that are `retired` in any case.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    single: Share = SINGLE
    sizes: Annotated[tuple[Size, ...], Field(min_length=1)] = (1, 2, 3)
    cap: Count = 8
    alone: Count = 40
    floor: Annotated[int, Field(ge=0)] = 20
    held_out: bool = False
    retired: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    fresh: tuple[str, ...] = ()
    shares: Shares = Shares()


def read_settings(path: Path) -> Settings:
    """Raises SettingsError."""
    try:
        settings = Settings.model_validate(tomllib.loads(path.read_bytes().decode()))
    except OSError as error:
        raise SettingsError(f"can't read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: expected TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the whole file"
        raise SettingsError(f"{path}: {field}: got {first['input']!r:.80}: {first['msg']}") from error
    return settings.model_copy(update={"skills": tuple(str((path.parent / one).resolve()) for one in settings.skills)})


def settings_text(settings: Settings) -> str:
    """The TOML that `read_settings` reads."""
    return tomlkit.dumps(settings.model_dump(mode="json", exclude_none=True))
