"""The exact request of every model call of a rollout, as one blob in which every message is kept once.

The blob is compressed JSON: `pieces`, each one message, a tool list or everything else that a body holds, and `calls`,
in the order sent, each with the numbers of its pieces. So a context that grows by a message a
call, or folds old ones, costs about what is new in it. A call that got no answer is the last one, without a turn.
"""

from __future__ import annotations

import json
import zlib
from typing import cast

from pydantic import JsonValue

from evolver.chat import JSON, Body

LEVEL = 3  # zlib's: 6 takes twice the time for 3 % less


class Sent:
    """Takes the bodies of one rollout's calls."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._calls: list[dict[str, JsonValue]] = []

    def add(self, body: Body) -> None:
        rest = dict(body)
        messages, tools = cast(list[JsonValue], rest.pop("messages")), rest.pop("tools", None)
        call: dict[str, JsonValue] = {"rest": self._number(rest), "messages": [self._number(m) for m in messages]}
        if tools is not None:
            call["tools"] = self._number(tools)
        self._calls.append(call)

    def _number(self, value: JsonValue) -> int:
        return self._numbers.setdefault(JSON.dump_json(value), len(self._numbers))

    def blob(self) -> bytes | None:
        """The bytes to keep; None when nothing was sent."""
        if not self._calls:
            return None
        head = JSON.dump_json({"calls": [*self._calls]})
        return zlib.compress(head[:-1] + b',"pieces":[' + b",".join(self._numbers) + b"]}", LEVEL)


def bodies(blob: bytes) -> list[Body]:
    """The bodies of a rollout's calls, in the order sent, each equal to what was added."""
    kept = json.loads(zlib.decompress(blob))
    pieces = kept["pieces"]
    found: list[Body] = []
    for call in kept["calls"]:
        tools = {"tools": pieces[call["tools"]]} if "tools" in call else {}
        found.append({**pieces[call["rest"]], "messages": [pieces[n] for n in call["messages"]], **tools})
    return found
