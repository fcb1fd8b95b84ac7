"""The `openai` model: any OpenAI-compatible endpoint (hosted, vLLM, SGLang) behind the Model seam.

Bodies are made here byte for byte, so that what is kept of a request is what was sent; AsyncOpenAI carries them.
A reply that can't be used is a Completion with `invalid`; an endpoint that does not answer in the end is
`ProviderFailed`; a refusal that no retry can mend (key, address, request), or an address where nobody has answered yet,
stops the run as `UsageError`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from pydantic import JsonValue

from evolver.chat import bytes_of
from evolver.config import OpenAISpec
from evolver.errors import Blamed, ProviderFailed, UsageError
from evolver.models.endpoint import asked_delay_s, delay_s, limiter_for
from evolver.models.wire import completion_from, spoiled_usage
from evolver.protocols import UNKNOWN_USAGE, Request
from evolver.records import Completion, Usage
from evolver.redact import keys_in, redacted
from evolver.tokens import image_rule_for

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

DEFAULT_URL = "https://api.openai.com/v1"
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
TRANSIENT = (408, 409, 429)
CONNECT_S = 10.0
PER_CLIENT = 16  # connections
SENT = ("ReadTimeout", "ReadError", "RemoteProtocolError")  # of httpx: the endpoint has the request, and may be at work


class OpenAIModel:
    """A model behind `spec.base_url`. Raises `UsageError` at once when the key's variable is not set.

    The key is held by the client alone; records, reprs and errors never show it.
    """

    def __init__(self, spec: OpenAISpec) -> None:
        self.id = spec.model
        self.url = spec.base_url or DEFAULT_URL
        self.declared = f"{spec.model} at {self.url}"
        self.image_rule = image_rule_for(spec.model, spec.image_tokens)
        self.dialect = spec.dialect
        self._spec = spec
        self._key = self._found_key()
        self._clients = self._connect()

    def __repr__(self) -> str:
        return f"OpenAIModel({self.declared})"

    def _found_key(self) -> str:
        key = os.environ.get(self._spec.api_key_env, "").strip()
        if not key and urlsplit(self.url).hostname not in LOCAL_HOSTS:
            raise UsageError(f"{self.declared} needs a key: set the environment variable {self._spec.api_key_env}")
        return key

    def _connect(self) -> Iterator[AsyncOpenAI]:
        from openai import AsyncOpenAI, Timeout

        # Retries are ours: the client's own know neither the shared limiter nor the wall clock.
        timeout = Timeout(self._spec.timeout_s, connect=min(self._spec.timeout_s, CONNECT_S))
        # A client's pool looks at all of its connections for every call, so many of them are spread over several.
        clients = [
            AsyncOpenAI(api_key=self._key or "none", base_url=self.url, timeout=timeout, max_retries=0)
            for _ in range(-(-self._spec.concurrency // PER_CLIENT))
        ]
        return cycle(clients)

    async def complete(self, request: Request) -> Completion:
        """One reply; transport errors, 408, 409, 429 and 5xx are tried again for `retry_for_s` seconds (for
        `first_contact_s` while nobody has ever answered), and the last try has `timeout_s` of its own."""
        if request.dialect != self.dialect:
            request = replace(request, dialect=self.dialect)
        body = bytes_of({"model": self.id, **request.body}, lambda frame_id: _png(request, frame_id))
        limiter = limiter_for(self.url, self._spec.concurrency)
        bound_s = self._spec.timeout_s + self._spec.retry_for_s
        tries, last = 0, "no answer"
        async with limiter.slot():
            began = time.monotonic()  # waiting for a slot of ours is not the endpoint's fault
            with suppress(TimeoutError):  # told below, with what the endpoint said last
                async with asyncio.timeout(bound_s):
                    while True:
                        await limiter.ready()
                        tries += 1
                        answer = await self._tried(body, request)
                        if isinstance(answer, Completion):
                            limiter.answered = True
                            return answer
                        limiter.answered |= not answer.unreachable
                        last = answer.why
                        limiter.throttled += answer.throttled
                        if answer.asked_s:
                            limiter.hold(answer.asked_s)
                        wait_s = delay_s(tries - 1, answer.asked_s)
                        patience_s = self._spec.retry_for_s if limiter.answered else self._spec.first_contact_s
                        if time.monotonic() + wait_s > began + min(patience_s, self._spec.retry_for_s):
                            break
                        limiter.warn(f"{self.declared}: {last}", time.monotonic() - began)
                        await asyncio.sleep(wait_s)
        if not limiter.answered:
            raise UsageError(
                f"{self.declared} does not answer ({last}): start the endpoint, or mend base_url, and run it again"
            )
        made = "1 try" if tries == 1 else f"{tries} tries"
        said = f"gave no usable answer in {made}; last: {last}" if tries else "was not asked"
        held = f"; it asked to be left alone for {limiter.held_s:,.0f} s more" if limiter.held_s else ""
        raise ProviderFailed(f"{self.declared} {said}{held}")

    async def _tried(self, body: bytes, request: Request) -> Completion | _Again:
        """`_once`, read. What may be billed all the same is noted, also when the caller gives up meanwhile."""
        try:
            answer = await self._once(body)
        except asyncio.CancelledError:
            request.spoiled.append(UNKNOWN_USAGE)
            raise
        if isinstance(answer, Mapping):
            completion = completion_from(answer, request)
            if completion is not None:
                return completion
            answer = _Again(self._safe(f"the reply holds no choice: {answer}"), None, billed=spoiled_usage(answer))
        if answer.billed is not None:
            request.spoiled.append(answer.billed)
        return answer

    async def _once(self, body: bytes) -> Mapping[str, JsonValue] | _Again:
        """One HTTP call: the decoded reply, or why it should be tried again. Raises `UsageError` on a refusal."""
        from openai import APIConnectionError, APIError, APIStatusError

        try:
            answer = await next(self._clients).post("/chat/completions", content=body, cast_to=object)
        except APIStatusError as error:
            return self._refused(error)
        except APIConnectionError as error:
            cause = error.__cause__ or error
            name = type(cause).__name__
            return _Again(
                self._safe(f"{name}: {cause}"),
                None,
                unreachable=name in ("ConnectError", "ConnectTimeout"),
                billed=UNKNOWN_USAGE if name in SENT else None,
            )
        except (APIError, ValueError) as error:  # a body that is not what it says it is
            return _Again(self._safe(f"unreadable reply: {error}"), None, billed=UNKNOWN_USAGE)
        if not isinstance(answer, dict):
            return _Again(self._safe(f"the reply is no JSON object: {answer}"), None)
        return cast("dict[str, JsonValue]", answer)

    def _refused(self, error: APIStatusError) -> _Again:
        body = error.body if isinstance(error.body, dict) else {}
        # Servers that have no `error.message` (FastAPI says `detail`) are quoted as they are.
        status, said = error.status_code, self._safe(str(body.get("message") or error.response.text or error.message))
        spent = error.code == "insufficient_quota"
        if (status in TRANSIENT or status >= 500) and not spent:
            return _Again(f"HTTP {status}: {said}", asked_delay_s(error.response.headers), throttled=status == 429)
        env = self._spec.api_key_env
        todo = {
            401: f"check the key in {env}",
            403: f"check what the key in {env} may use",
            404: "check `model` and `base_url` in the config (most base URLs end in /v1)",
            429: f"the account of the key in {env} has no quota left; top it up",
        }.get(status, "the endpoint does not accept this request; check what model and server support, and `dialect`")
        raise UsageError(f"{self.declared}: HTTP {status}: {said}; {todo}") from None

    def _safe(self, text: str) -> str:
        return " ".join(redacted(text, keys_in([self._spec.api_key_env])).split())[:400]


def _png(request: Request, frame_id: str) -> bytes:
    png = request.frames.get(frame_id, b"")
    if not png:
        raise Blamed(f"frame {frame_id[:12]} is named in the messages, but its bytes are not in the request")
    return png


@dataclass(frozen=True)
class _Again:
    """A failure that may pass: why, for how long the endpoint asked to be left alone, whether nobody was there, whether
    it turned the call away as one too many, and what it may bill (None: nothing)."""

    why: str
    asked_s: float | None
    unreachable: bool = False
    throttled: bool = False
    billed: Usage | None = None
