"""A base that sees: each picture stands where it was shown, whole and outside the loss, seen by its own row alone."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from evolver.context import request_for, request_sha256, summary_of
from evolver.errors import UsageError
from evolver.protocols import Request
from evolver.records import Image, Message, Observed, Rollout, Text, ToolResult, Turn
from harnesses.harness import Sampling
from tests.training.conversations import END, INSTRUCTION, Said, beta1, completion, rollout
from tests.training.test_rows import rows_of
from training.batches import collator_for, examples_of
from training.checkpoints import base_checkpoint, load_model
from training.cost import shape_of, training_flop
from training.pack import pack
from training.recipe import Lora, Recipe
from training.render import Renderer, open_renderer
from training.rows import Row
from training.seeing import SeeingDecoder
from training.sft import Stage, train, trainer_for
from training.student import StudentModel, student_card
from training.vision import open_vision

pytestmark = pytest.mark.train
torch = pytest.importorskip("torch")
PNGS: dict[str, bytes] = {}


def screen(shade: int, width: int = 84, height: int = 56) -> Image:
    """A picture of one shade that gets 3 x 2 features."""
    from PIL import Image as Picture

    file = io.BytesIO()
    Picture.new("RGB", (width, height), (shade, 255 - shade, 40)).save(file, "PNG")
    name = hashlib.sha256(file.getvalue()).hexdigest()
    PNGS[name] = file.getvalue()
    return Image(frame_id=name, width=width, height=height)


def played(shades: list[int], name: str = "r-0") -> Rollout:
    """A rollout that looks at a screen before its first turn and after each but the last."""
    first, *later = [Observed(image=screen(shade)) for shade in shades]
    said = [Said(text=f"Step {n}.", command=f"touch {n}") for n in range(len(later))] + [END]
    log: list[Turn] = []
    for index, one in enumerate(said):
        messages, tools = request_for(beta1(), INSTRUCTION, first, log)
        reply = completion(one)
        log.append(
            Turn(
                index=index, request_sha256=request_sha256(messages, tools), completion=reply,
                summary=summary_of(reply), results=(ToolResult(call_id="call_0", text=one.result),), channel="terminal",
                observed=later[index] if index < len(later) else Observed(), model_s=0.0, tools_s=0.0,
            )
        )  # fmt: skip
    return rollout(name=name).model_copy(update={"first": first, "turns": tuple(log)})


@pytest.fixture(scope="module")
def base() -> Path:
    return base_checkpoint("tiny-random-qwen2-vl")


@pytest.fixture(scope="module")
def seeing(recipe: Recipe) -> Recipe:
    return recipe.model_copy(update={"base": "tiny-random-qwen2-vl", "max_length": 2_000, "learning_rate": 3e-2})


@pytest.fixture(scope="module")
def eyes(base: Path, seeing: Recipe) -> Renderer:
    return open_renderer(base, seeing.render)


@pytest.fixture(scope="module")
def rows(eyes: Renderer, seeing: Recipe) -> list[Row]:
    return list(rows_of([played([10, 60, 200]), played([10, 90], "r-1"), rollout(name="r-2")], eyes, seeing).rows)


def test_t14_pictures_of_any_role_stand_where_they_were_shown(eyes: Renderer) -> None:
    messages = (
        Message(role="user", parts=(Text(text="Look:"), screen(1), Text(text="not at <|image_pad|>"))),
        Message(role="tool", parts=(Text(text="made"), screen(2, 28, 28)), call_id="call_0"),
        Message(role="user", parts=(screen(3, 56, 28),)),
    )
    vision = open_vision(base_checkpoint("tiny-random-qwen2-vl"))
    assert vision is not None
    ids = eyes.prompt(messages, ())
    for message in messages:
        for part in message.parts:
            if isinstance(part, Image):
                shown = vision.ids(part.width, part.height)
                at = next(i for i in range(len(ids)) if ids[i : i + len(shown)] == shown)
                ids = [*ids[:at], *eyes.tokenizer.encode(f"({part.width}x{part.height})").ids, *ids[at + len(shown) :]]
    said = eyes.decode(ids)
    assert "user\nLook:\n(84x56)\nnot at <|image_pad|><|im_end|>" in said and vision.picture not in ids
    assert "tool\nmade\n(28x28)<|im_end|>\n<|im_start|>user\n(56x28)<|im_end|>" in said
    assert eyes.frames(messages) == tuple(screen(*a).frame_id for a in ((1,), (2, 28, 28), (3, 56, 28)))
    assert len(vision.ids(84, 56)) == 2 + 6 and eyes.pictures_in(eyes.prompt(messages, ())) == 3


def test_t15_a_picture_is_never_cut_and_has_its_features(eyes: Renderer, base: Path, seeing: Recipe) -> None:
    (whole,) = rows_of([played([10, 60, 200])], eyes, seeing).rows
    assert len(whole.frames) == 3
    collate = collator_for(load_model(base, "float32"), base, PNGS.__getitem__)
    kept = set()
    for limit in range(len(whole.ids) // 4, len(whole.ids), 7):
        fork = seeing.model_copy(update={"overlength": "fork", "max_length": limit})
        for row in rows_of([played([10, 60, 200])], eyes, fork).rows:
            seen = collate(examples_of([[row]]))
            assert len(seen["pixel_values"]) == 4 * 6 * len(row.frames) == 4 * row.ids.count(eyes.vision.picture)
            kept.add(len(row.frames))
    assert kept == {1, 2}
    short = Row(whole.ids[:-1], whole.loss[:-1], "r", (0,), whole.frames[:2])
    trainer = trainer_for(Stage([short], seeing, 0, base, PNGS.__getitem__), base.parent / "unused")
    with pytest.raises(UsageError, match="2 pictures have 12 features, the text has places for 18"):
        next(iter(trainer.get_train_dataloader()))


def test_t16_the_loss_is_on_the_replies_whatever_stands_before_them(rows: list[Row], eyes: Renderer) -> None:
    row = rows[0]
    learned = eyes.decode([token for token, counted in zip(row.ids, row.loss, strict=True) if counted])
    assert learned.startswith("Step 0.") and learned.count("<|im_end|>") == 3 and "Everything is done." in learned
    assert eyes.vision.picture not in {token for token, label in zip(row.ids, row.labels, strict=True) if label != -100}


def test_two_pictures_of_one_size_are_two_rows(eyes: Renderer, seeing: Recipe) -> None:
    found = rows_of([played([10, 60]), played([10, 61], "r-1"), played([10, 60], "r-2")], eyes, seeing)
    assert len(found.rows) == 2 and found.rows[0].ids == found.rows[1].ids and found.dropped == {"duplicate": 1}
    assert found.sha256 != rows_of([played([10, 60]), played([10, 62], "r-1")], eyes, seeing).sha256


def test_t09_packed_rows_with_pictures_have_the_logits_of_the_rows_alone(
    rows: list[Row], base: Path, seeing: Recipe, tmp_path: Path
) -> None:
    found = packed_and_alone(rows, base, seeing, tmp_path)
    assert found.furthest < 1e-5 and found.other_pictures > 1e-4


@dataclass
class Apart:
    """How far logits lie apart at most: of rows packed and alone, of a pack and the same with its pictures swapped."""

    furthest: float
    other_pictures: float


def packed_and_alone(rows: list[Row], base: Path, seeing: Recipe, work: Path) -> Apart:
    """Through the trainer's own batches, beside transformers' own positions for each row alone."""
    packed = seeing.model_copy(update={"pack_tokens": 2_000, "batch_rows": 1})
    assert len(pack(rows, 2_000).packs) == 1
    trainer = trainer_for(Stage(rows, packed, 0, base, PNGS.__getitem__), work)
    (batch,) = trainer.get_train_dataloader()
    batch.pop("labels")
    alone = load_model(base, "float32").eval()
    vision = open_vision(base)
    with torch.inference_mode():
        together = trainer.model.eval()(**batch).logits[0]
        start, furthest = 0, 0.0
        for row in sorted(rows, key=lambda r: -len(r.ids)):
            ids = torch.tensor([row.ids])
            pixels = vision.pixels([PNGS[frame] for frame in row.frames])
            own = alone(input_ids=ids, mm_token_type_ids=(ids == vision.picture).int(), **pixels).logits[0]
            furthest = max(furthest, float((together[start : start + len(row.ids)] - own).abs().max()))
            start += len(row.ids)
        other = batch | {"pixel_values": batch["pixel_values"].flip(0)}
        return Apart(furthest, float((trainer.model(**other).logits[0] - together).abs().max()))


@pytest.mark.parametrize("family", ["Qwen2_5_VL", "Qwen3VL"])
def test_other_families_that_see_are_packed_alike(family: str, base: Path, seeing: Recipe, tmp_path: Path) -> None:
    """Random models of the later families, whose windows, patches and positions differ."""
    import transformers

    config = json.loads((base / "config.json").read_text())
    text = {**config["text_config"], "model_type": None}
    vision = {
        "Qwen2_5_VL": {"depth": 2, "hidden_size": 32, "out_hidden_size": 48, "num_heads": 2, "intermediate_size": 64,
                       "fullatt_block_indexes": [1]},
        "Qwen3VL": {"depth": 2, "hidden_size": 32, "out_hidden_size": 48, "num_heads": 2, "intermediate_size": 64,
                    "deepstack_visual_indexes": [0], "num_position_embeddings": 64},
    }[family]  # fmt: skip
    named = {name: value for name, value in config.items() if name.endswith("_token_id")}
    made = getattr(transformers, f"{family}Config")(
        text_config={name: value for name, value in text.items() if value is not None}, vision_config=vision,
        tie_word_embeddings=True, **named,
    )  # fmt: skip
    torch.manual_seed(0)
    getattr(transformers, f"{family}ForConditionalGeneration")(made).save_pretrained(tmp_path / "base")
    shutil.copy(base / "tokenizer.json", tmp_path / "base")
    cut = {"patch_size": made.vision_config.patch_size, "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 64}
    transformers.Qwen2VLImageProcessorPil(**cut).save_pretrained(tmp_path / "base")
    eyes = open_renderer(tmp_path / "base", seeing.render)
    rows = rows_of([played([10, 60]), rollout(name="r-2"), played([90], "r-3")], eyes, seeing).rows
    found = packed_and_alone(list(rows), tmp_path / "base", seeing, tmp_path)
    assert found.furthest < 1e-5 and found.other_pictures > 1e-4


async def test_a_student_that_sees_is_trained_merged_and_served(
    rows: list[Row], base: Path, seeing: Recipe, eyes: Renderer, tmp_path: Path
) -> None:
    adapted = seeing.model_copy(update={"lora": Lora(rank=4), "epochs": 3})
    made = train(Stage(rows, adapted, 0, base, PNGS.__getitem__), tmp_path / "a", print)
    assert made.loss_last < made.loss_first and made.logit_shift > 0
    before, after = (dict(load_model(path, "float32").named_parameters()) for path in (base, tmp_path / "a"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("language_model.layers" in name and name.endswith("proj.weight") for name in changed)
    shape = shape_of(tmp_path / "a", adapted)
    assert shape.vision == sum(weight.numel() for name, weight in before.items() if "visual" in name)
    assert training_flop(rows[:1], shape, 1) > training_flop(
        [Row(rows[0].ids[:-40], rows[0].loss[:-40], "", ())], shape, 1
    )

    messages = (Message(role="user", parts=(Text(text="Look."), screen(77))),)
    prompt, pngs = eyes.prompt(messages, ()), [PNGS[screen(77).frame_id]]
    decoder = SeeingDecoder(tmp_path / "a", dtype="float32", slots=2)
    slot, logits = decoder.begin(prompt, pngs)
    other, _ = decoder.begin([5, 6, 7])
    (next_one, _) = decoder.step([slot, other], [9, 9])
    whole = torch.tensor([[*prompt, 9]])
    model, vision = load_model(tmp_path / "a", "float32").eval(), open_vision(base)
    with torch.inference_mode():
        wanted = model(input_ids=whole, mm_token_type_ids=(whole == vision.picture).int(), **vision.pixels(pngs)).logits
    assert torch.allclose(logits, wanted[0, -2], rtol=0, atol=1e-5)
    assert torch.allclose(next_one, wanted[0, -1], rtol=0, atol=1e-5)

    card = student_card("student-sees", adapted, eyes.sha256, 0)
    student = StudentModel(tmp_path / "a", card)
    request = Request(
        messages=messages, tools=(), sampling=Sampling(temperature=0.0, max_tokens=16), seed=0,
        frames={screen(77).frame_id: pngs[0]},
    )  # fmt: skip
    try:
        reply = await student.complete(request)
    finally:
        student.close()
    assert reply.usage.input_tokens == len(prompt) and (reply.usage.output_tokens or 0) > 0
