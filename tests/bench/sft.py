"""What training costs: CPU seconds of forward and backward passes over rows of agents, laid in batches in five ways,
and with all, half or none but an adapter of the weights trained.

Goal: flat batches, as training makes them, cost at most 0.8 of padded ones in the order they come, and no more than
padded ones sorted by length. The others are what they are measured beside.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from training.attention import use_attention
from training.checkpoints import base_checkpoint, load_model
from training.pack import pack
from training.recipe import Lora, Recipe
from training.rows import Row
from training.weights import adapter_of, freeze

BATCH, BATCHES = 4, 3
SHORTEST, LONGEST = 60, 416  # the demo's rows
GOAL = 0.8
Step = Callable[[Sequence[Row]], torch.Tensor]


def rows() -> list[Row]:
    """Made-up ids: what a token is costs nothing. The last quarter is learned."""
    draw = random.Random(0)
    made = []
    for name in range(BATCH * BATCHES):
        length = draw.randint(SHORTEST, LONGEST)
        ids = tuple(draw.randrange(3, 40_000) for _ in range(length))
        made.append(Row(ids, tuple(4 * i > 3 * length for i in range(length)), f"r-{name}", (0,)))
    return made


def padded(batch: Sequence[Row]) -> dict[str, torch.Tensor]:
    longest = max(len(row.ids) for row in batch)
    ids = torch.tensor([[*row.ids, *[0] * (longest - len(row.ids))] for row in batch])
    labels = torch.tensor([[*row.labels, *[-100] * (longest - len(row.ids))] for row in batch])
    mask = torch.tensor([[1] * len(row.ids) + [0] * (longest - len(row.ids)) for row in batch])
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def flat(batch: Sequence[Row], bounds: bool = True) -> dict[str, torch.Tensor]:
    ids = torch.tensor([[token for row in batch for token in row.ids]])
    labels = torch.tensor([[label for row in batch for label in row.labels]])
    positions = torch.tensor([[i for row in batch for i in range(len(row.ids))]])
    lengths = torch.tensor([0, *(len(row.ids) for row in batch)], dtype=torch.int32)
    made = {"input_ids": ids, "labels": labels, "position_ids": positions}
    return made | ({"cu_seq_lens_q": lengths.cumsum(0)} if bounds else {})


def cpu_seconds(model: torch.nn.Module, batches: Sequence[dict[str, torch.Tensor]]) -> float:
    """CPU time, so that who else works on the machine counts little."""
    began = time.process_time()
    for batch in batches:
        labels = batch.pop("labels")
        hidden = model.model(**batch, use_cache=False).last_hidden_state[:, :-1]
        learned = labels[:, 1:] != -100
        logits = model.lm_head(hidden[learned]).float()
        F.cross_entropy(logits, labels[:, 1:][learned]).backward()
        model.zero_grad()
    return time.process_time() - began


def split(made: Sequence[Row]) -> list[Sequence[Row]]:
    return [made[i : i + BATCH] for i in range(0, len(made), BATCH)]


def partly_trained(batches: Sequence[Sequence[Row]]) -> dict[str, float]:
    """CPU seconds by what a recipe trains."""
    from peft import get_peft_model

    ways = {
        "all layers trained": Recipe(),
        "lower 15 of 30 frozen": Recipe(frozen_layers=15),
        "adapter on all layers": Recipe(lora=Lora()),
        "adapter on the upper 15": Recipe(lora=Lora(), frozen_layers=15),
    }
    seconds = {}
    for way, recipe in ways.items():
        model = load_model(base_checkpoint(recipe.base), recipe.dtype)
        use_attention(model, recipe.attention)
        freeze(model, recipe)
        adapter = adapter_of(model, recipe)
        if adapter is not None:
            get_peft_model(model, adapter)  # puts it into the model
        cpu_seconds(model, [flat(batches[0][:1])])
        seconds[way] = cpu_seconds(model, [flat(batch) for batch in batches])
    return seconds


def main() -> int:
    torch.set_num_threads(1)
    model = load_model(base_checkpoint("smollm2-135m"), "bfloat16")
    model.get_input_embeddings().requires_grad_(False)
    made = rows()
    by_length = sorted(made, key=lambda row: len(row.ids))
    tokens = sum(len(row.ids) for row in made)
    packs = pack(made, 2 * LONGEST)
    cpu_seconds(model, [padded(made[:1])])  # the first call allocates
    seconds = {
        "padded, as they come": cpu_seconds(model, [padded(batch) for batch in split(made)]),
        "padded, by length": cpu_seconds(model, [padded(batch) for batch in split(by_length)]),
        "flat, one mask": cpu_seconds(model, [flat(batch, bounds=False) for batch in split(made)]),
    }
    use_attention(model, "sdpa")
    seconds["flat, row by row"] = cpu_seconds(model, [flat(batch) for batch in split(made)])
    seconds["packs, row by row"] = cpu_seconds(model, [flat(batch) for batch in packs.packs])
    print(f"{len(made)} rows of {SHORTEST} to {LONGEST} tokens, {tokens} in all, 1 thread; {packs.report}")
    for way, cost in seconds.items():
        print(
            f"{way:22s} {cost:6.1f} CPU s, {tokens / cost:6.0f} tokens/s, {cost / seconds['padded, as they come']:.2f}"
        )
    ratio = seconds["flat, row by row"] / seconds["padded, as they come"]
    sorted_ratio = seconds["flat, row by row"] / seconds["padded, by length"]
    met = ratio <= GOAL and sorted_ratio <= 1.05
    compared = f"flat costs {ratio:.2f} of padded (goal {GOAL}), {sorted_ratio:.2f} of sorted"
    trained = partly_trained(split(made)[:1])
    for way, cost in trained.items():
        print(f"{way:24s} {cost:6.1f} CPU s, {cost / trained['all layers trained']:.2f}")
    print(f"sft: {compared}: {'goal met' if met else 'short of goal'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
