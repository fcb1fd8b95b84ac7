"""What students of one run's rollouts have learned, by recipe: trained on five sixths of the rows, asked for the rest.

    python tests/bench/recipes.py --run runs/gap --harness beta1 --recipe gap 'mixed=false' 'batch_rows=4'

Each argument is a variant of the recipe: settings as in YAML, with commas between them. Without arguments: its weights
in bfloat16, and in float32 (`mixed`). Goal: of these two, float32 gets more of the held-out rows all right, which means
that each of their learned tokens is the likeliest after what comes before it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import yaml

from devset.splits import load_split
from evolver.population import cards_of, final_cards
from evolver.records import Rollout, Scorecard
from evolver.store import Store
from harnesses.library import Library
from training.batches import collator_for, examples_of
from training.checkpoints import base_checkpoint, load_model
from training.recipe import Recipe, load_recipe
from training.render import open_renderer
from training.rows import Row, build_rows
from training.sft import Stage, train

HELD_OUT = 6  # one row in so many


def rows_of(run: Path, harness: str, recipe: Recipe) -> Sequence[Row]:
    """The rows that a student of the harness would be trained on."""
    store, library = Store.open(run), Library(run / "library")
    found = library.get(harness)
    library.close()
    cards = cards_of(store.all(Scorecard), found.id, "train", "demonstrator")
    rollouts = {rollout.id: rollout for rollout in store.all(Rollout)}
    played = [(rollouts[card.rollout_id], card) for card in final_cards(cards)]
    instructions = {task.id: task.instruction for task in load_split("train")}
    renderer = open_renderer(base_checkpoint(recipe.base), recipe.render)
    return build_rows(found, instructions, played, renderer, recipe).rows


@torch.inference_mode()
def held_out(checkpoint: Path, rows: Sequence[Row]) -> tuple[float, float]:
    """(nats a row, share of rows that are all right)."""
    model = load_model(checkpoint, "bfloat16").eval()
    collate = collator_for(model, checkpoint, lambda frame: b"")
    nats, right = 0.0, 0
    for example in examples_of([[row] for row in rows]):
        labels = collate([example])["labels"][0]
        learned = (labels[1:] != -100).nonzero().flatten()
        logits = model(input_ids=torch.tensor([example["input_ids"]])).logits[0, learned].float()
        nats += float(torch.nn.functional.cross_entropy(logits, labels[learned + 1], reduction="sum"))
        right += bool((logits.argmax(-1) == labels[learned + 1]).all())
    return nats / len(rows), right / len(rows)


def measure(recipe: Recipe, rows: Sequence[Row], seed: int) -> tuple[float, float, float]:
    """(CPU seconds of training, nats a held-out row, share all right)."""
    asked = rows[::HELD_OUT]
    learned = [row for number, row in enumerate(rows) if number % HELD_OUT]
    with tempfile.TemporaryDirectory() as folder:
        out, began = Path(folder) / "student", time.process_time()
        train(Stage(learned, recipe, seed, base_checkpoint(recipe.base)), out, lambda line: None)
        return time.process_time() - began, *held_out(out, asked)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("variants", nargs="*", metavar="SETTINGS")
    options.add_argument("--run", type=Path, default=Path("runs/demo"), help="a run with train rollouts of the teacher")
    options.add_argument("--harness", default="beta1")
    options.add_argument("--recipe", default="demo")
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    recipe = load_recipe(asked.recipe)
    rows = rows_of(asked.run, asked.harness, recipe)
    variants = asked.variants or ["mixed=false", "mixed=true"]
    found = []
    for variant in variants:
        settings = {name: yaml.safe_load(value) for name, value in (pair.split("=") for pair in variant.split(","))}
        cpu, nats, right = measure(Recipe.model_validate(recipe.model_dump() | settings), rows, asked.seed)
        found.append(right)
        print(f"{variant}: {cpu:.0f} CPU s, {nats:.1f} nats a held-out row, {100 * right:.1f} % all right", flush=True)
    met = bool(asked.variants) or found[1] > found[0]
    print(f"recipes: {len(rows)} rows, one in {HELD_OUT} held out {'goal met' if met else 'short of goal'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
