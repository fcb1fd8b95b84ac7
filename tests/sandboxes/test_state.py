"""What a rollout finds at its start, and what is kept at its end: drawn windows, no trace of another one, a flush."""

from __future__ import annotations

import asyncio
import io
import tarfile

import pytest

from devset.families import families
from devset.task import OpenApp
from evolver.errors import SetupFailed
from evolver.protocols import Act, Sandbox, Sandboxes
from evolver.rollout import set_up
from harnesses.harness import Environment
from harnesses.tree import read_tree, seed_path
from tests.sandboxes.desk import window

# A window in one colour that is painted after so many seconds, and a program that writes when the window is closed.
KEEPER = """
import os, sys, time
from Xlib import X, display
d = display.Display()
s = d.screen()
w = s.root.create_window(300, 300, 200, 100, 0, s.root_depth, background_pixel=s.black_pixel)
close = d.intern_atom("WM_DELETE_WINDOW")
w.set_wm_name("Keeper")
w.set_wm_protocols([close])
w.change_property(d.intern_atom("_NET_WM_PID"), d.intern_atom("CARDINAL"), 32, [os.getpid()])
w.map()
d.flush()
time.sleep(float(sys.argv[1]))
w.fill_rectangle(w.create_gc(foreground=s.white_pixel), 10, 10, 50, 50)
d.flush()
while True:
    e = d.next_event()
    if e.type == X.ClientMessage and e.data[1][0] == close:
        w.destroy()
        d.flush()
        time.sleep(0.5)
        open(f"/home/user/Desktop/{sys.argv[2]}", "w").write("kept")
        break
"""


def held(state: bytes, name: str) -> bytes | None:
    with tarfile.open(fileobj=io.BytesIO(state)) as tar:
        packed = tar.extractfile(name) if name in tar.getnames() else None
        return None if packed is None else packed.read()


@pytest.mark.desktop
async def test_s42_what_programs_write_when_they_are_closed_is_kept_and_what_nobody_saved_is_not(
    desktop: Sandbox,
) -> None:
    """One policy for both channels: what the shell started and what stands on the screen are asked to close alike."""
    await desktop.write("/tmp/keeper.py", KEEPER.encode())
    await desktop.write("Desktop/open.txt", b"as it was\n")
    await desktop.bash("python3 /tmp/keeper.py 0 by-shell.txt &", timeout_s=10)
    await desktop.spawn("python3 /tmp/keeper.py 0 by-screen.txt")
    await desktop.spawn("mousepad ~/Desktop/open.txt")
    await window(desktop, "open.txt")
    await desktop.screenshot(settle_s=10)
    await desktop.act(Act("type", text="typed, not saved"))
    await desktop.screenshot(settle_s=5)
    assert any(title.startswith("*") for title in await desktop.windows())
    assert (await desktop.windows()).count("Keeper") == 2
    state = await desktop.freeze()
    assert (held(state, "Desktop/by-shell.txt"), held(state, "Desktop/by-screen.txt")) == (b"kept", b"kept")
    assert held(state, "Desktop/open.txt") == b"as it was\n"


@pytest.mark.desktop
async def test_g16_a_task_starts_only_when_its_window_is_there_and_drawn(desktop: Sandbox) -> None:
    await desktop.write("/tmp/keeper.py", KEEPER.encode())
    task = families()["text.append"].instance(0)
    opened = task.model_copy(update={"open": (OpenApp(command="python3 /tmp/keeper.py 4 x", window="Keeper"),)})
    starting = asyncio.create_task(set_up(desktop, read_tree(seed_path("beta1")), opened))
    await window(desktop, "Keeper")
    await asyncio.sleep(1)  # it is placed, framed and all black by now
    assert "Keeper" not in await desktop.windows(drawn=True) and not starting.done()
    await starting
    assert "Keeper" in await desktop.windows(drawn=True)
    wrong = task.model_copy(update={"setup": "exit 3"})
    with pytest.raises(SetupFailed, match="setup ended with 3"):
        await set_up(desktop, read_tree(seed_path("beta1")), wrong)


async def test_g18_a_second_rollout_sees_nothing_of_the_first(backend: Sandboxes) -> None:
    places = ("/home/user/mark.txt", "/tmp/mark.txt", "/dev/shm/mark.txt", "/harness/mark.txt")
    first = await backend.open(Environment(image="terminal"), run_id="test", ttl_s=120, rollout_id="r-1")
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 9999)); time.sleep(60)"
    await first.bash(f"for place in {' '.join(places)}; do echo seen > $place; done; export MARK=seen", timeout_s=10)
    await first.bash(f'python3 -c "{listen}" & sleep 0.5', timeout_s=10)
    assert [await first.read(place) for place in places[:3]] == [b"seen\n"] * 3
    ids = {first.id}
    look = (
        "ls " + " ".join(places) + " 2> /dev/null; echo $MARK; ps -e -o args | grep -c '[9]999'; "
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9999), 1)\" 2> /dev/null && echo reached"
    )
    for beside in (True, False):  # while the first one runs, and after its end
        if not beside:
            await first.close()
        second = await backend.open(Environment(image="terminal"), run_id="test", ttl_s=120, rollout_id="r-2")
        assert (await second.bash(look, timeout_s=20)).output.split() == ["0"]
        assert second.id not in ids
        ids.add(second.id)
        await second.close()


@pytest.mark.desktop
async def test_the_screen_may_be_gone_at_the_end(desktop: Sandbox) -> None:
    await desktop.screenshot(settle_s=1)
    await desktop.exec("echo here > ~/Desktop/kept.txt; pkill openbox; pkill Xvfb; sleep 0.3", timeout_s=10)
    assert held(await desktop.freeze(), "Desktop/kept.txt") == b"here\n"
