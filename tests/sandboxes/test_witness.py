"""A task's witness: a program that the agent sees and uses, and whose words it can't put into the frozen state."""

from __future__ import annotations

import asyncio
import io
import tarfile

from evolver.protocols import Sandbox
from tests.sandboxes.desk import until

TALK = b"import time\nprint(open('words').read(), flush=True)\ntime.sleep(100)\n"
FILES = {"talk.py": TALK, "words": b"the page gave 0"}


def file_of(state: bytes, name: str) -> bytes | None:
    with tarfile.open(fileobj=io.BytesIO(state)) as tar:
        found = [member for member in tar.getmembers() if member.name == name]
        assert len(found) < 2
        taken = tar.extractfile(found[0]) if found else None
        return None if taken is None else taken.read()


async def begun(box: Sandbox) -> None:
    await box.witness("exec python3 talk.py", FILES)

    async def talks() -> bool:
        return (await box.exec("pgrep -f talk.py", timeout_s=5)).exit_code == 0

    await until(talks, "the witness does not run")
    await asyncio.sleep(0.2)


async def test_g09_g17_the_agent_can_write_no_word_of_the_witness(terminal: Sandbox) -> None:
    await begun(terminal)
    await terminal.exec("echo 'the page gave 1' > .witness; mkdir kept; echo a > kept/.witness", timeout_s=5)
    state = await terminal.freeze()
    assert file_of(state, ".witness") == b"the page gave 0\n"
    assert file_of(state, "kept/.witness") == b"a\n"


async def test_without_a_witness_no_state_has_one(terminal: Sandbox) -> None:
    await terminal.exec("echo 'the page gave 1' > .witness", timeout_s=5)
    assert file_of(await terminal.freeze(), ".witness") is None


async def test_g17_where_there_are_users_the_agent_reaches_nothing_of_the_witness(kind: str, terminal: Sandbox) -> None:
    await begun(terminal)
    attack = (
        "pid=$(pgrep -of talk.py); cat /tmp/.witness/words; ls /tmp/.witness; rm -rf /tmp/.witness; "
        "echo 'the page gave 1' > /proc/$pid/fd/1; kill -9 $pid; kill -0 $pid && echo lives; cat /proc/$pid/environ"
    )
    if kind == "docker":
        said = (await terminal.exec(attack, timeout_s=5)).output
        assert said.count("denied") == 5 or said.count("denied") + said.count("not permitted") >= 5, said
        assert "gave 0" not in said
    killed = await terminal.exec("sleep 60", timeout_s=0.5)
    assert killed.timed_out
    alive = (await terminal.exec("pgrep -f talk.py", timeout_s=5)).exit_code == 0
    assert alive, "a command that ran out of time took the witness with it"
    assert file_of(await terminal.freeze(), ".witness") == b"the page gave 0\n"


async def test_what_a_witness_says_is_bounded_and_its_first_words_are_kept(terminal: Sandbox) -> None:
    flood = b"print('first', flush=True)\nwhile True:\n    print('x' * 1000)\n"
    await terminal.witness("exec python3 flood.py", {"flood.py": flood})
    await asyncio.sleep(0.5)
    said = file_of(await terminal.freeze(), ".witness") or b""
    assert said.startswith(b"first\n") and len(said) <= 64 << 10
