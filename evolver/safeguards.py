"""Settings of what keeps a run honest: guards of a promotion, checks of the experiment, the final comparison."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from evolver.records import Finite

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Limit = Annotated[Finite, Field(ge=0)] | None


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GuardsConfig(Section):
    """What no gain makes up for, looked at before a promotion on all attempts of both arms (evolver.guards).

    Of each limit: absent = the default (`evolver.guards.LIMITS`), judged where it can be measured; a number = this
    limit, and an error where what it needs is not on record; 0 = off. `app` is the fall of one app's success (0..1),
    with at least `app_attempts` attempts in each arm. `tokens`, `dollars` and `seconds` are growth on the tasks that
    both solve (1.0 = twice as much). `infra` is the share of attempts lost on our side, beyond the incumbent's.
    `channel` is the shift of an app's share of terminal calls (0..1) beyond what the manifest expects, `rubric` the
    lead in the rubric score beyond that in success: both are flagged, and keep from a promotion only where a limit is
    given.
    Each guard stops an edit that does no harm with probability `error` at most.
    """

    app: Limit = None
    tokens: Limit = None
    dollars: Limit = None
    seconds: Limit = None
    infra: Limit = None
    channel: Limit = None
    rubric: Limit = None
    app_attempts: Positive = 8
    error: Annotated[float, Field(gt=0, lt=0.5)] = 0.05


class ChecksConfig(Section):
    """What a run does to find out whether it can be believed.

    Before its first candidate: the original against itself, with a planted flaw and with an edit that can't matter, on
    `tasks` dev tasks with `attempts` attempts an arm (0 tasks = none); an agent that does nothing and the oracle on
    `graded` of them. During it, one candidate in `neutral_every` is an edit that can't matter (0 = none).
    """

    tasks: Count = 6
    attempts: Positive = 2
    graded: Count = 2
    neutral_every: Count = 20


class FinalConfig(Section):
    """The final comparison on `test`: `attempts` a task of each arm; the original may have up to `best_of` for the
    baseline that spends as much as the winner."""

    attempts: Positive = 2
    best_of: Positive = 8
