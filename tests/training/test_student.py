"""A checkpoint behind the Model seam: many replies at once, each as it would be alone."""

from __future__ import annotations

import asyncio
import queue
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolver.config import load_config
from evolver.errors import UsageError
from evolver.models import make_model
from evolver.protocols import Held, Request
from evolver.records import Message, Text
from evolver.testing import ModelContract
from harnesses.harness import Sampling
from training.recipe import Recipe, StudentSampling
from training.render import Renderer, RenderOptions, load_tokenizer
from training.student import (
    CARD,
    StudentModel,
    Ticket,
    choose,
    open_student,
    open_untrained,
    student_card,
    untrained_id,
)

pytestmark = pytest.mark.train
torch = pytest.importorskip("torch")


def request(text: str = "Rename it.", seed: int = 0, temperature: float = 0.7) -> Request:
    messages = (Message(role="user", parts=(Text(text=text),)),)
    return Request(messages=messages, tools=(), sampling=Sampling(temperature=temperature, max_tokens=512), seed=seed)


class TestStudentKeepsTheModelContract(ModelContract):
    @pytest.fixture(autouse=True)
    def _opened(self, recipe: Recipe) -> Iterator[None]:
        self.opened: list[StudentModel] = []
        self.recipe = recipe
        yield
        for model in self.opened:
            model.close()

    def make(self) -> StudentModel:
        self.opened.append(open_untrained(self.recipe))
        return self.opened[-1]

    def request(self) -> Request:
        return request()


def test_a_control_is_shared_by_the_recipes_that_serve_it_alike_and_by_no_others(
    recipe: Recipe, tmp_path: Path
) -> None:
    alike = [{}, {"learning_rate": 1e-3}, {"equal": "budget"}, {"concurrency": 2}]
    others = [
        {"render": RenderOptions(system="full")}, {"sampling": StudentSampling(max_new_tokens=25)},
        {"window_tokens": 512}, {"dtype": "bfloat16"},
        {"base": str(tmp_path / "a" / "llama")}, {"base": str(tmp_path / "b" / "llama")},
    ]  # fmt: skip
    assert len({untrained_id(recipe.model_copy(update=change)) for change in alike}) == 1
    assert len({untrained_id(recipe.model_copy(update=change)) for change in [{}, *others]}) == 1 + len(others)


async def test_many_at_once_are_answered_each_as_alone(student: StudentModel) -> None:
    texts = [f"Rename file {n} to {'x' * n}." for n in range(11)]  # more than there are slots
    alone = [await student.complete(request(text)) for text in texts]
    together = await asyncio.gather(*(student.complete(request(text)) for text in texts))
    assert together == alone


async def test_s31_a_reply_that_does_not_end_is_cut_off_and_invalid(student: StudentModel) -> None:
    reply = await student.complete(request())  # random weights do not write an end of turn in 24 tokens
    assert reply.finish_reason == "length" and reply.invalid == "the reply was cut off after 24 tokens"
    assert reply.calls == ()
    assert reply.usage.output_tokens == 24 and reply.usage.counted_by == "tokenizer"


async def test_a_request_longer_than_the_window_is_the_harness_s_fault(student: StudentModel) -> None:
    reply = await student.complete(request("word " * 2_000))
    assert reply.finish_reason == "length" and "the student's window is 1024" in (reply.invalid or "")


async def test_sampling_is_the_request_s_own_seed_whatever_the_batch(recipe: Recipe) -> None:
    warm = recipe.model_copy(update={"sampling": StudentSampling(temperature=None, max_new_tokens=8)})
    student = open_untrained(warm)
    try:
        alone = await student.complete(request(seed=3))
        batch = await asyncio.gather(*(student.complete(request(seed=seed)) for seed in range(8)))
        assert batch[3] == alone and len({reply.text for reply in batch}) > 1
    finally:
        student.close()


def test_top_p_leaves_out_the_tail() -> None:
    logits = torch.tensor([0.0, 4.0, 3.0, -2.0])
    drawn = {
        choose(logits, Ticket(prompt=[], limit=1, temperature=1.0, top_p=0.5, seed=s, done=print)) for s in range(40)
    }
    assert drawn == {1}


@pytest.fixture
def broken(recipe: Recipe, tiny: Path, tmp_path: Path) -> StudentModel:
    """A student without weights."""
    checkpoint = tmp_path / "broken"
    checkpoint.mkdir()
    (checkpoint / "tokenizer.json").write_bytes((tiny / "tokenizer.json").read_bytes())
    template = Renderer(load_tokenizer(checkpoint), recipe.render).sha256
    return StudentModel(checkpoint, student_card("student-broken", recipe, template, 0))


async def test_a_failing_worker_is_heard_by_all_who_wait(broken: StudentModel) -> None:
    answers = await asyncio.gather(*(broken.complete(request()) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError] * 3, answers


async def test_a_request_that_comes_while_the_worker_fails_is_answered(broken: StudentModel) -> None:
    class Late(queue.SimpleQueue[Ticket | None]):
        def put(self, item: Ticket | None, block: bool = True, timeout: float | None = None) -> None:
            if broken._worker is not None:
                broken._worker.join(2)  # until it has told all who wait, if it may
            super().put(item, block, timeout)

    broken._tickets = Late()
    with pytest.raises(ValueError):
        await asyncio.wait_for(broken.complete(request()), 30)


async def test_a_closed_student_serves_again(student: StudentModel) -> None:
    before = await student.complete(request())
    student.close()
    assert await student.complete(request()) == before


def test_t10_another_template_is_refused(recipe: Recipe, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tiny / "tokenizer.json").read_bytes())
    template = Renderer(load_tokenizer(tiny), recipe.render).sha256
    card = student_card("student-x", recipe, template, 0)
    (tmp_path / CARD).write_text(card.model_dump_json())
    assert open_student(tmp_path).card == card
    assert open_student(tmp_path.name, tmp_path.parent).id == "student-x"
    (tmp_path / CARD).write_text(card.model_copy(update={"render": RenderOptions(system="full")}).model_dump_json())
    with pytest.raises(UsageError, match="another template"):
        open_student(tmp_path)


async def test_a_student_can_be_the_model_of_a_run_and_is_sampled_as_its_harness_says(
    recipe: Recipe, tiny: Path, tmp_path: Path
) -> None:
    checkpoint, template = tmp_path / "student-x", Renderer(load_tokenizer(tiny), recipe.render).sha256
    shutil.copytree(tiny, checkpoint)
    card = student_card("student-x", recipe, template, 0)  # whose own temperature is 0
    (checkpoint / CARD).write_text(card.model_dump_json())
    (tmp_path / "run.toml").write_text('teacher = { kind = "student", checkpoint = "student-x" }')
    config = load_config(tmp_path / "run.toml")
    player = make_model(config.teacher)
    assert (
        isinstance(player, StudentModel) and isinstance(player, Held) and player.id == config.teacher_id == "student-x"
    )
    try:
        cold = [await player.complete(request(seed=seed, temperature=0.0)) for seed in range(2)]
        warm = [await player.complete(request(seed=seed, temperature=2.0)) for seed in range(2)]
        assert cold[0] == cold[1] and warm[0] != warm[1]
    finally:
        player.close()
    (checkpoint / CARD).write_text(card.model_copy(update={"id": "student-y"}).model_dump_json())
    with pytest.raises(UsageError, match="holds student-y"):
        make_model(config.teacher)


def test_an_unknown_student_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no student 'student-nobody'"):
        open_student("student-nobody", tmp_path)
