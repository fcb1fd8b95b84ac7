"""OSWorld tasks as they are published, and what the importer makes of them."""

from __future__ import annotations

import json
from pathlib import Path

from devset.importers.offer import Offer
from devset.importers.osworld import offers
from devset.task import Task

RULE = {"type": "rule", "rules": {"expected": "yes\n"}}
COMMAND = {"type": "vm_command_line", "command": "[ -d ~/Desktop/b ] && echo yes || echo no", "shell": True}
KEYS = "import pyautogui, time; pyautogui.hotkey('ctrl','s'); time.sleep(1); pyautogui.press('return')"
SAVING = {"type": "execute", "parameters": {"command": ["python", "-c", KEYS]}}


def published(root: Path, evaluator: object, **changes: object) -> Path:
    task = {
        "id": "ab-1",
        "snapshot": "os",
        "instruction": "Rename a to b.",
        "config": [{"type": "execute", "parameters": {"command": "mkdir -p ~/Desktop/a", "shell": True}}],
        "related_apps": ["os"],
        "evaluator": evaluator,
        **changes,
    }
    (root / "os").mkdir(parents=True, exist_ok=True)
    (root / "os/ab-1.json").write_text(json.dumps(task))
    (root / "list.json").write_text('{"os": ["ab-1"]}')
    return root


def only(root: Path, package: Path) -> Offer:
    (offer,) = offers(root, package)
    return offer


def imported(root: Path, package: Path) -> Task:
    offer = only(root, package)
    assert offer.task is not None, offer.reasons
    return offer.task
