"""Runs a Harbor task's own tests on a copy of the frozen home, and reads the reward that they write.

The tests and the agent's files get the paths that the importer has put into both: the home at /home/user, the tests
and the reward below /tmp/harbor. What the agent wrote may be run by the tests; the machine is used for nothing else.
Like Harbor, reward.json counts before reward.txt. No reward, an unreadable one, or a test run that does not end in
time is an error of the checker.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from devset.checks.home import revive

CONFIG = "harbor.json"
KEY = "reward"


def reward_in(folder: Path) -> float:
    """The reward in `folder`; raises ValueError when there is none or it is not one finite number."""
    written = [folder / name for name in ("reward.json", "reward.txt") if (folder / name).is_file()]
    if not written:
        raise ValueError("the tests wrote no reward")
    text = written[0].read_text(encoding="utf-8")
    try:
        value = json.loads(text) if written[0].suffix == ".json" else float(text)
    except ValueError:
        raise ValueError(f"{written[0].name} holds {text[:60]!r}, expected a reward") from None
    if isinstance(value, dict):
        if KEY not in value and len(value) != 1:
            raise ValueError(f"{written[0].name} has the rewards {sorted(value)}, and none is called {KEY!r}")
        value = value.get(KEY, next(iter(value.values())))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{written[0].name} holds {value!r}, expected a finite number")
    return float(value)


def place(home: Path, gt: Path, live: Path, harbor: Path) -> None:
    """Puts a copy of the frozen home at `live` and the tests at `harbor`/tests; what was there is removed."""
    shutil.rmtree(harbor, ignore_errors=True)
    revive(home, live)
    shutil.copytree(gt / "tests", harbor / "tests")
    for folder in ("logs/verifier", "logs/artifacts", "logs/agent"):
        (harbor / folder).mkdir(parents=True)


def run_tests(config: dict[str, object], live: Path, harbor: Path) -> str:
    """Runs tests/test.sh in the task's working directory; returns the end of what it printed."""
    workdir = live / str(config["workdir"])
    workdir.mkdir(parents=True, exist_ok=True)
    env = {
        **{name: os.environ[name] for name in ("LANG", "TZ", "PYTHONPATH") if name in os.environ},
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(live),
        "PYTHONDONTWRITEBYTECODE": "1",
        **{str(name): str(value) for name, value in dict(config["env"]).items()},  # type: ignore[call-overload]
    }
    log = harbor / "logs/verifier/test-stdout.txt"
    with log.open("wb") as out:
        tests = subprocess.Popen(
            ["bash", str(harbor / "tests/test.sh")], cwd=workdir, env=env, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            tests.wait(float(str(config["timeout_s"])))
        except subprocess.TimeoutExpired:
            raise SystemExit(f"the tests did not end within {config['timeout_s']} s") from None
        finally:
            try:
                os.killpg(tests.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-300:]


def main() -> None:
    """The body of a check program: `argv` = frozen home, folder with harbor.json and tests/."""
    home, gt = Path(sys.argv[1]), Path(sys.argv[2])
    config = json.loads((gt / CONFIG).read_text(encoding="utf-8"))
    live, harbor = Path(config["home"]), Path(config["harbor"])
    place(home, gt, live, harbor)
    said = run_tests(config, live, harbor)
    try:
        value = reward_in(harbor / "logs/verifier")
    except ValueError as error:
        raise SystemExit(f"{error}; the tests said: {said}") from error
    json.dump({KEY: {"value": value, "explanation": said}}, sys.stdout)
