"""Who is to blame: the few exception types, whose blame and kind a rollout keeps as its `Failure`."""

from __future__ import annotations

from typing import Literal

Blame = Literal["harness", "task", "provider", "sandbox", "grader", "platform"]


class UsageError(Exception):
    """Bad input: one line that names it and says what to do. The command exits with 2."""


class RequestRefused(UsageError):
    """A model refuses this one request (too long, filtered), and answers others."""


class NotReady(Exception):
    """The machine lacks something (Docker, an image, a key): one line with the command that mends it. Exit code 3."""


class JudgeSilent(NotReady):
    """The judge does not answer. What it was to grade is on record, and is graded when it does."""


class BudgetSpent(Exception):
    """A cap of the ledger is reached: the run stops cleanly and can be resumed with a higher cap. Exit code 4."""


class Blamed(Exception):
    """A failure of one attempt with its cause attributed."""

    blame: Blame = "platform"
    kind = "error"


class SandboxLost(Blamed):
    blame: Blame = "sandbox"
    kind = "sandbox_lost"


class SetupFailed(Blamed):
    blame: Blame = "task"
    kind = "setup"


class ProviderFailed(Blamed):
    """The endpoint did not answer in the end (after retries of transport errors)."""

    blame: Blame = "provider"
    kind = "provider"


class CheckerFailed(Blamed):
    blame: Blame = "grader"
    kind = "checker"


class BadAction(Exception):
    """The model asked for something that a tool can't do: returned to it as a tool error, never fatal."""
