import sys
from pathlib import Path

from devset.checks import grade

expected = (Path(sys.argv[2]) / "minutes.txt").read_text().splitlines()
grade({"corrected": [("text_is", {"path": "Desktop/minutes.txt", "expected": expected})]})
