"""The `replay` model: answers with the completions of a recorded rollout, as long as it is asked exactly the same."""

from __future__ import annotations

from evolver.context import request_sha256
from evolver.errors import Blamed
from evolver.protocols import Request
from evolver.records import Completion, Rollout


class ReplayModel:
    """Replays one rollout, once. A request that differs from the recorded one is an error, never another answer."""

    def __init__(self, rollout: Rollout) -> None:
        self.id = rollout.key.model_id
        self.image_rule = rollout.image_rule
        self.declared = f"replay of {rollout.id}"
        self._turns = rollout.turns
        self._next = 0

    async def complete(self, request: Request) -> Completion:
        if self._next >= len(self._turns):
            raise Blamed(f"{self.declared}: asked for turn {self._next}, but only {len(self._turns)} were recorded")
        turn = self._turns[self._next]
        asked = request_sha256(request.messages, request.tools)
        if asked != turn.request_sha256:
            raise Blamed(
                f"{self.declared}: the request of turn {turn.index} is {asked[:12]}, recorded was "
                f"{turn.request_sha256[:12]}; harness, task or tool results have changed"
            )
        self._next += 1
        return turn.completion
