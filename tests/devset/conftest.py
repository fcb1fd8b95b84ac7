"""A small package in the shape of desktop-env's metrics, for the tasks that name them."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = {
    "__init__.py": "from .general import (\n    exact_match,\n    sizes,\n    broken,\n    drawn\n)\n"
    "from .gone import lost\n",
    "general.py": """
import os
from skimage.metrics import ssim
from desktop_env.evaluators.metrics.shared import same

LIMIT = ssim

def exact_match(result, rules) -> float:
    print("compared", end="")
    return same(result, rules["expected"])

def sizes(result, expected, **options):
    if result is None:
        return 0.0
    return float(os.path.getsize(result) == os.path.getsize(expected)) * options.get("factor", 1)

def broken(result, rules):
    raise RuntimeError("no such thing")

def drawn(result, rules):
    return LIMIT(result)
""",
    "shared.py": "import numpy\n\ndef same(a, b):\n    return float(a == b)\n",
    "gone.py": "",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "desktop_env/evaluators/metrics"
    folder.mkdir(parents=True)
    for name, source in PACKAGE.items():
        (folder / name).write_text(source)
    return folder
