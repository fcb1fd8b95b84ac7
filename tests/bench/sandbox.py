"""What a sandbox costs: start, screen, click, shell, sixteen at once; and the same by one `docker exec` per action.

Goals: the first picture within 1 s of asking for a machine (with a warm spare, as runs have them; without one it is
printed too), a shell command within 5 ms, a picture within 80 ms, and an action (a click or a shell command) in a
twentieth of what one `docker exec` per action takes in the same container in the same minute.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from evolver.protocols import Act, Sandbox, Sandboxes
from evolver.sandboxes import open_backend
from harnesses.harness import Environment

DESKTOP = Environment(image="desktop")
COMPARED = Environment(image="desktop", apt=("scrot", "xdotool"))  # what the other way of acting needs
ROUNDS, QUICK, AT_ONCE, TTL_S = 6, 200, 16, 600.0
START_S, SHELL_MS, SHOT_MS, RATIO = 1.0, 5.0, 80.0, 20.0
# A window whose colour changes all the time: no two pictures are the same.
RESTLESS = """
import itertools, time
from Xlib import display
d = display.Display()
w = d.screen().root.create_window(900, 500, 300, 200, 0, 24, override_redirect=1, background_pixel=0)
w.map()
for colour in itertools.cycle(range(0, 0xffffff, 0x10203)):
    w.change_attributes(background_pixel=colour); w.clear_area(); d.sync(); time.sleep(0.01)
"""


async def timed(action: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await action()
    return time.perf_counter() - began


async def median(action: Callable[[], Awaitable[object]], rounds: int, *, pause_s: float = 0.0) -> float:
    """Seconds; the first one is not counted."""
    seconds = []
    for _ in range(rounds + 1):
        seconds.append(await timed(action))
        await asyncio.sleep(pause_s)
    return statistics.median(seconds[1:])


async def fresh(backend: Sandboxes, environment: Environment = DESKTOP) -> Sandbox:
    return await backend.open(environment, run_id="bench", ttl_s=TTL_S)


async def first_picture(backend: Sandboxes) -> Sandbox:
    box = await fresh(backend)
    await box.screenshot()
    return box


async def shown(box: Sandbox, title: str) -> None:
    """Returns once a window of that title is there and stands still."""
    for _ in range(1_500):
        if any(title in name for name in await box.windows()):
            break
        await asyncio.sleep(0.02)
    else:
        raise SystemExit(f"no window {title}, only {await box.windows()}")
    if not (await box.screenshot(settle_s=20)).settled:
        raise SystemExit(f"the screen did not come to rest after {title} opened")


async def starts(spares: int) -> tuple[float, float]:
    """(start to first picture, reset: an open machine is closed and the first picture of a new one taken); seconds"""
    backend = open_backend("docker", spares=spares)
    start, reset = [], []
    try:
        box = await first_picture(backend)
        for _ in range(ROUNDS):
            await asyncio.sleep(2.5)  # a spare is made meanwhile
            began = time.perf_counter()
            await box.close()
            closed = time.perf_counter()
            box = await first_picture(backend)
            start.append(time.perf_counter() - closed)
            reset.append(time.perf_counter() - began)
    finally:
        await backend.aclose()
    return statistics.median(start), statistics.median(reset)


async def calc(backend: Sandboxes) -> float:
    """Seconds from asking for a machine to a Calc window that stands still; the median of three."""

    async def once() -> None:
        box = await fresh(backend)
        await box.spawn("soffice --calc")
        await shown(box, "Calc")
        await box.close()

    return await median(once, 3)


async def all_at_once(backend: Sandboxes) -> float:
    """Seconds until sixteen desktops, asked for together, have each given their first picture."""
    began = time.perf_counter()
    boxes = await asyncio.gather(*(first_picture(backend) for _ in range(AT_ONCE)))
    seconds = time.perf_counter() - began
    await asyncio.gather(*(box.close() for box in boxes))
    return seconds


async def docker_exec(box: Sandbox, *command: str) -> None:
    argv = ["docker", "exec", "--user", "1000:1000", "--env", "DISPLAY=:0", box.id, *command]
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}: {errors.decode()[-300:]}")


async def actions(backend: Sandboxes) -> dict[str, tuple[float, float]]:
    """Per kind of action: (milliseconds here, milliseconds by one `docker exec` each), in the same container."""
    box = await fresh(backend, COMPARED)
    await box.write("restless.py", RESTLESS.encode())
    await box.spawn("soffice --calc")
    await shown(box, "Calc")
    await box.spawn("python3 restless.py")
    await asyncio.sleep(1)
    ours = {
        "shell": (lambda: box.bash("true", timeout_s=10), QUICK, 0.0),
        "click": (lambda: box.act(Act("left_click", x=700, y=600)), 12, 0.6),  # sooner ones wait, to be no double click
        "picture": (lambda: box.screenshot(), 30, 0.0),
    }
    theirs = {
        "shell": ("true",),
        "click": ("xdotool", "mousemove", "700", "600", "click", "1"),
        "picture": ("sh", "-c", "scrot --overwrite --quality 100 /tmp/shot.png && cat /tmp/shot.png"),
    }
    path = await median(lambda: box.act(Act("wait", seconds=0)), QUICK)
    print(f"an action that does nothing: {1000 * path:.2f} ms (the rest of a click is waiting, for applications' sake)")
    found = {}
    for kind, (action, rounds, pause_s) in ours.items():
        here = await median(action, rounds, pause_s=pause_s)
        there = await median(lambda kind=kind: docker_exec(box, *theirs[kind]), 15)
        found[kind] = 1000 * here, 1000 * there
    await box.close()
    return found


async def measure() -> tuple[list[str], bool]:
    """(figures, whether every goal is met)"""
    cold, cold_reset = await starts(0)
    warm, warm_reset = await starts(1)
    print(f"start to first picture: {cold:.2f} s cold, {warm:.2f} s with a spare (goal {START_S:g} s)")
    print(f"reset (close one, first picture of the next): {cold_reset:.2f} s cold, {warm_reset:.2f} s with a spare")
    backend = open_backend("docker", spares=0)
    try:
        print(f"start to a drawn Calc window, cold: {await calc(backend):.2f} s")
        print(f"{AT_ONCE} desktops at once to their first pictures: {await all_at_once(backend):.1f} s")
        by_kind = await actions(backend)
    finally:
        await backend.aclose()
    for kind, (here, there) in by_kind.items():
        print(f"{kind}: {here:.2f} ms, by docker exec {there:.0f} ms, {there / here:.0f}x")
    (shell, shell_exec), (click, click_exec), (shot, _) = by_kind.values()
    ratio = (shell_exec + click_exec) / (shell + click)
    met = min(cold, warm) <= START_S and shell <= SHELL_MS and shot <= SHOT_MS and ratio >= RATIO
    which = "cold and warm" if cold <= START_S else "with a spare only"
    return [
        f"first picture {warm:.2f} s warm, {cold:.2f} s cold (goal {START_S:g} s: {which})",
        f"shell {shell:.2f} ms (goal {SHELL_MS:g})",
        f"picture {shot:.0f} ms (goal {SHOT_MS:g})",
        f"docker exec takes {ratio:.0f}x the ms of an action (shell {shell_exec / shell:.0f}x, click "
        f"{click_exec / click:.0f}x; goal {RATIO:g}x)",
    ], met


def main() -> int:
    figures, met = asyncio.run(measure())
    print(f"sandbox: {'; '.join(figures)} {'goal met' if met else 'short of goal'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
