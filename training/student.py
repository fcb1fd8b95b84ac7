"""A checkpoint served as a Model: many rollouts wait at once, one worker thread decodes them together."""

from __future__ import annotations

import asyncio
import hashlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from evolver.calls import parse_reply
from evolver.errors import UsageError
from evolver.protocols import Request
from evolver.records import Completion, Usage
from training.checkpoints import base_checkpoint, base_identity
from training.recipe import Recipe, StudentSampling
from training.render import RenderOptions, open_renderer

if TYPE_CHECKING:
    import torch

    from training.decoder import Decoder, Slot
    from training.seeing import SeeingDecoder

    AnyDecoder = Decoder | SeeingDecoder

CARD = "student.json"


class StudentCard(BaseModel):
    """What lies beside a checkpoint (`student.json`): how it must be shown its input and sampled."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    base: str
    trained: bool
    seed: int | None
    template_sha256: str
    render: RenderOptions
    sampling: StudentSampling
    dtype: Literal["bfloat16", "float32"]
    window_tokens: int
    concurrency: int
    device: Literal["cpu", "cuda"] = "cpu"


@dataclass
class Ticket:
    """One reply that is waited for. `done` gets the new ids (end of turn included if it came), or an exception.

    `pngs` are the pictures of the prompt, in order.
    """

    prompt: list[int]
    limit: int
    temperature: float
    top_p: float
    seed: int
    done: Callable[[list[int] | Exception], None]
    ids: list[int] = field(default_factory=list)
    random: torch.Generator | None = None
    pngs: tuple[bytes, ...] = ()


class StudentModel:
    """A student behind the Model seam. `close` ends its worker; until then it holds weights and cache."""

    def __init__(self, checkpoint: Path, card: StudentCard) -> None:
        self.id = card.id
        self.card = card
        self.checkpoint = checkpoint
        self.renderer = open_renderer(checkpoint, card.render)
        if self.renderer.sha256 != card.template_sha256:
            raise UsageError(f"{card.id} was made with another template than this version renders: train it again")
        how = "untrained" if not card.trained else f"trained, seed {card.seed}"
        temperature = card.sampling.temperature
        sampled = "the harness's sampling" if temperature is None else f"temperature {temperature:g}"
        self.declared = (
            f"student {card.base} ({how}; {card.render.system} system prompt, {sampled}, at most "
            f"{card.sampling.max_new_tokens} tokens a reply)"
        )
        self._tickets: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._queueing = threading.Lock()  # a ticket goes to a worker that lives, or to the next one

    async def complete(self, request: Request) -> Completion:
        """One reply. What can't be read back, or did not end by itself, comes back as `invalid`, without calls."""
        prompt = self.renderer.prompt(request.messages, request.tools)
        limit = min(request.sampling.max_tokens, self.card.sampling.max_new_tokens)
        if len(prompt) + limit > self.card.window_tokens:
            reason = f"the request has {len(prompt)} tokens, the student's window is {self.card.window_tokens}"
            return Completion(text="", finish_reason="length", invalid=reason, usage=_usage(len(prompt), 0))
        ids = await self._decoded(prompt, limit, request)
        ended = ids[-1] == self.renderer.end
        reply = parse_reply(self.renderer.decode(ids[:-1] if ended else ids))
        usage = _usage(len(prompt), len(ids))
        if not ended:
            reason = f"the reply was cut off after {len(ids)} tokens"
            return Completion(
                text=reply.text, reasoning=reply.reasoning, finish_reason="length", invalid=reason, usage=usage
            )
        return Completion(
            text=reply.text,
            reasoning=reply.reasoning,
            calls=reply.calls,
            finish_reason="tool_calls" if reply.calls else "stop",
            invalid=reply.invalid,
            usage=usage,
        )

    def close(self) -> None:
        """Ends the worker after the replies that are waited for."""
        with self._queueing:
            worker = self._worker
            if worker is not None:
                self._tickets.put(None)
        if worker is not None:
            worker.join()
            self._worker = None

    async def _decoded(self, prompt: list[int], limit: int, request: Request) -> list[int]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[int]] = loop.create_future()

        def settle(outcome: list[int] | Exception) -> None:
            if future.done():  # the rollout was cancelled meanwhile
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        own = self.card.sampling.temperature
        ticket = Ticket(
            prompt=prompt,
            limit=limit,
            temperature=request.sampling.temperature if own is None else own,
            top_p=request.sampling.top_p,
            seed=request.seed,
            pngs=tuple(request.frames[frame] for frame in self.renderer.frames(request.messages)),
            done=lambda outcome: _from_thread(loop, settle, outcome),
        )
        with self._queueing:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name=self.id, daemon=True)
                self._worker.start()
            self._tickets.put(ticket)
        return await future

    def _work(self) -> None:
        running: dict[int, tuple[Slot, Ticket]] = {}
        try:
            decoder = self._open()
            accepting = True
            while accepting or running:
                accepting = accepting and self._admit(decoder, running)
                if running:
                    self._advance(decoder, running)
        except Exception as error:  # noqa: BLE001 (whoever waits must hear of it, whatever it is)
            self._fail(error, running)

    def _open(self) -> AnyDecoder:
        import torch

        from training.decoder import Decoder
        from training.seeing import SeeingDecoder

        torch.manual_seed(0)
        card = self.card
        if self.renderer.vision is not None:
            return SeeingDecoder(self.checkpoint, dtype=card.dtype, slots=card.concurrency, device=card.device)
        shape = {"slots": card.concurrency, "max_length": card.window_tokens}
        return Decoder(self.checkpoint, dtype=card.dtype, device=card.device, **shape)

    def _admit(self, decoder: AnyDecoder, running: dict[int, tuple[Slot, Ticket]]) -> bool:
        """Begins waiting tickets while slots are free; blocks only when nothing runs. False: closed."""
        while len(running) < self.card.concurrency:
            try:
                ticket = self._tickets.get(block=not running)
            except queue.Empty:
                return True
            if ticket is None:
                return False
            slot, logits = decoder.begin(ticket.prompt, ticket.pngs)
            running[slot.index] = (slot, ticket)
            self._write(decoder, running, slot.index, logits)
        return True

    def _advance(self, decoder: AnyDecoder, running: dict[int, tuple[Slot, Ticket]]) -> None:
        pairs = [running[index] for index in sorted(running)]
        logits = decoder.step([slot for slot, _ in pairs], [ticket.ids[-1] for _, ticket in pairs])
        for (slot, _), row in zip(pairs, logits, strict=True):
            self._write(decoder, running, slot.index, row)

    def _write(
        self, decoder: AnyDecoder, running: dict[int, tuple[Slot, Ticket]], index: int, logits: torch.Tensor
    ) -> None:
        """Chooses the next token of a slot; hands the reply back when it is complete."""
        slot, ticket = running[index]
        ticket.ids.append(choose(logits, ticket))
        if ticket.ids[-1] == self.renderer.end or len(ticket.ids) >= ticket.limit:
            decoder.end(slot)
            del running[index]
            ticket.done(ticket.ids)

    def _fail(self, error: Exception, running: dict[int, tuple[Slot, Ticket]]) -> None:
        for _, ticket in running.values():
            ticket.done(error)
        with self._queueing:
            self._worker = None
            while not self._tickets.empty():
                waiting = self._tickets.get()
                if waiting is not None:
                    waiting.done(error)


def choose(logits: torch.Tensor, ticket: Ticket) -> int:
    """The next token: the likeliest at temperature 0, else drawn with the request's own seed, whatever the batch."""
    import torch

    if ticket.temperature == 0:
        return int(logits.argmax())
    if ticket.random is None:
        ticket.random = torch.Generator().manual_seed(ticket.seed)
    probabilities, order = torch.softmax(logits / ticket.temperature, dim=-1).sort(descending=True)
    if ticket.top_p < 1:
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities.masked_fill(before >= ticket.top_p, 0.0)
    return int(order[torch.multinomial(probabilities, 1, generator=ticket.random)])


def student_card(student_id: str, recipe: Recipe, template_sha256: str, seed: int | None) -> StudentCard:
    """The card of a student of this recipe; `seed` None is the untrained control."""
    return StudentCard(
        id=student_id,
        base=recipe.base,
        trained=seed is not None,
        seed=seed,
        template_sha256=template_sha256,
        render=recipe.render,
        sampling=recipe.sampling,
        dtype=recipe.dtype,
        window_tokens=recipe.window_tokens,
        concurrency=recipe.concurrency,
        device=recipe.device,
    )


def open_student(student: str | Path, students_dir: Path | None = None) -> StudentModel:
    """A trained student by its directory, or by its id within `students_dir` (RUN/students)."""
    paths = [Path(student), *([students_dir / str(student)] if students_dir is not None else [])]
    path = next((p for p in paths if (p / CARD).is_file()), None)
    if path is None:
        raise UsageError(f"no student {str(student)!r}: expected a directory with {CARD}, as RUN/students/<id>")
    try:
        card = StudentCard.model_validate_json((path / CARD).read_text())
    except ValidationError as error:
        raise UsageError(f"{path / CARD}: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from None
    return StudentModel(path, card)


def as_player(checkpoint: str) -> StudentModel:
    """A trained student as the model of a run: its harness says how it is sampled, since that is part of a scaffold."""
    made = open_student(checkpoint)
    if made.id != Path(checkpoint).name:
        raise UsageError(f"{checkpoint} holds {made.id}: give the directory that name, which every record will carry")
    sampling = made.card.sampling.model_copy(update={"temperature": None})
    return StudentModel(made.checkpoint, made.card.model_copy(update={"sampling": sampling}))


def open_untrained(recipe: Recipe) -> StudentModel:
    """The control: the recipe's base model as it came, under the same template, sampling and window."""
    checkpoint = base_checkpoint(recipe.base)
    template = open_renderer(checkpoint, recipe.render).sha256
    return StudentModel(checkpoint, student_card(untrained_id(recipe), recipe, template, None))


def untrained_id(recipe: Recipe) -> str:
    """The control's id: the same for all recipes that show the same base the same and sample it the same."""
    served = {"render", "sampling", "window_tokens", "dtype"}
    shown = f"{base_identity(recipe.base)} {recipe.model_dump_json(include=served)}"
    return f"student-{Path(recipe.base).name}@untrained-{hashlib.sha256(shown.encode()).hexdigest()[:8]}"


def _usage(prompt: int, written: int) -> Usage:
    return Usage(input_tokens=prompt, output_tokens=written, counted_by="tokenizer")


def _from_thread(
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[list[int] | Exception], None],
    outcome: list[int] | Exception,
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle, outcome)
