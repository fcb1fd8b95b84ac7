"""One contract test class per seam: tests/contracts runs them on every implementation, fakes included.

A test subclasses a contract and says how to make the thing.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Sequence
from unittest import SkipTest

from devset.task import Criterion, Task
from evolver.errors import BadAction, SandboxLost
from evolver.protocols import Act, Author, Evidence, Executor, Grader, Model, Observer, Request, Sandbox
from evolver.records import Completion, Record, Rollout, Score
from harnesses.tree import harness_from_files

HOME = "/home/user"
Case = tuple[Sequence[Criterion], Task, Rollout, bytes]


class ModelContract:
    """Give `make` (a fresh model) and `request` (one that it answers)."""

    def make(self) -> Model:
        raise NotImplementedError

    def request(self) -> Request:
        raise NotImplementedError

    async def test_answers_with_a_completion_that_can_be_recorded(self) -> None:
        model = self.make()
        answer = await model.complete(self.request())
        assert model.id and model.declared
        assert Completion.model_validate_json(answer.model_dump_json()) == answer

    async def test_call_ids_differ_and_an_invalid_reply_has_no_calls(self) -> None:
        answer = await self.make().complete(self.request())
        assert len({c.id for c in answer.calls}) == len(answer.calls)
        assert answer.invalid is None or not answer.calls

    async def test_usage_is_counted_or_unknown_but_never_zero(self) -> None:
        usage = (await self.make().complete(self.request())).usage
        assert usage.input_tokens is None or usage.input_tokens > 0
        assert usage.output_tokens is None or usage.output_tokens > 0


class SandboxContract:
    """Give `open`: a fresh sandbox with nothing in its home that matters."""

    async def open(self) -> Sandbox:
        raise NotImplementedError

    async def test_exec_gives_output_and_exit_code(self) -> None:
        sandbox = await self.open()
        try:
            ran = await sandbox.exec("echo hi; exit 3", timeout_s=20)
        finally:
            await sandbox.close()
        assert (ran.exit_code, ran.output.strip(), ran.timed_out) == (3, "hi", False)

    async def test_a_command_over_its_time_has_no_exit_code(self) -> None:
        sandbox = await self.open()
        try:
            ran = await sandbox.exec("sleep 60", timeout_s=1)
            after = await sandbox.exec("echo hi; exit 3", timeout_s=20)
        finally:
            await sandbox.close()
        assert ran.exit_code is None and ran.timed_out
        assert after.exit_code == 3

    async def test_the_shell_keeps_its_state(self) -> None:
        sandbox = await self.open()
        try:
            await sandbox.bash("cd /tmp", timeout_s=20)
            ran = await sandbox.bash("pwd", timeout_s=20)
        finally:
            await sandbox.close()
        assert (ran.exit_code, ran.output.strip()) == (0, "/tmp")

    async def test_bytes_come_back_as_they_were_written(self) -> None:
        data = bytes(range(256)) * 300
        sandbox = await self.open()
        try:
            await sandbox.write(f"{HOME}/deep/folder/a file.bin", data)
            assert await sandbox.read(f"{HOME}/deep/folder/a file.bin") == data
        finally:
            await sandbox.close()

    async def test_a_frozen_home_is_a_tar_of_relative_paths_and_nothing_works_after_it(self) -> None:
        sandbox = await self.open()
        try:
            await sandbox.write(f"{HOME}/notes.txt", b"kept")
            state = await sandbox.freeze()
            with tarfile.open(fileobj=io.BytesIO(state)) as tar:
                names = {name.removeprefix("./") for name in tar.getnames()}
                assert "notes.txt" in names and not any(n.startswith(("/", "..")) for n in names)
            try:
                await sandbox.exec("echo hi; exit 3", timeout_s=20)
            except SandboxLost:
                pass
            else:
                raise AssertionError("a frozen sandbox still ran a command")
        finally:
            await sandbox.close()
        await sandbox.close()


class MachineContract(SandboxContract):
    """For a sandbox that really runs what it is told, with a shell and, from `open_desktop`, a screen.

    `small` opens one with 256 MiB of memory. `window` is a command and what the title of its window holds. `weaker`
    names what the implementation documents that it can't do (`memory`: bounded in all; `screen`: out of the agent's
    reach).
    """

    window = ("mousepad", "Mousepad")
    weaker: frozenset[str] = frozenset()

    async def open_desktop(self) -> Sandbox:
        raise NotImplementedError

    async def small(self) -> Sandbox:
        raise NotImplementedError

    def _needs(self, strength: str) -> None:
        if strength in self.weaker:
            raise SkipTest(f"documented as weaker: {strength}")

    async def test_what_waits_for_ever_ends_at_its_timeout_and_the_next_command_works(self) -> None:
        sandbox = await self.open()
        try:
            for command in ("cat <<EOF\nnever ends", "echo 'open", "read line", "sleep 61 & sleep 62"):
                await sandbox.bash(command, timeout_s=1)
            ran = await sandbox.bash("pgrep sleep; echo alive", timeout_s=20)
        finally:
            await sandbox.close()
        assert (ran.exit_code, ran.output) == (0, "alive\n")

    async def test_long_output_keeps_its_head_and_tail_and_says_how_much_is_gone(self) -> None:
        sandbox = await self.open()
        try:
            ran = await sandbox.bash("echo first; yes | head -c 1000000; printf '\\xff\\nlast\\n'", timeout_s=30)
        finally:
            await sandbox.close()
        assert ran.output.startswith("first\n") and ran.output.endswith("last\n") and len(ran.output) < 20_000
        assert 900_000 < ran.truncated_chars < 1_000_011

    async def test_an_ended_shell_is_replaced_with_a_notice(self) -> None:
        sandbox = await self.open()
        try:
            ended = await sandbox.bash("exit 3", timeout_s=20)
            after = await sandbox.bash("echo hi", timeout_s=20)
        finally:
            await sandbox.close()
        assert (ended.exit_code, after.output, after.notice) == (3, "hi\n", "") and ended.notice

    async def test_the_agent_is_nobody_and_reaches_nothing(self) -> None:
        sandbox = await self.open()
        try:
            who = await sandbox.exec("id -u; grep -cE 'Cap(Eff|Prm|Amb):.*[1-9a-f]' /proc/self/status", timeout_s=20)
            space = await sandbox.exec("unshare --user true", timeout_s=20)
            net = await sandbox.exec("exec 3<>/dev/tcp/1.1.1.1/53", timeout_s=20)
            connections = sandbox.connections
        finally:
            await sandbox.close()
        assert who.output.split()[0] != "0" and who.output.split()[1] == "0"
        assert space.exit_code and net.exit_code and not connections

    async def test_control_outlives_whatever_the_agent_kills(self) -> None:
        sandbox = await self.open()
        try:
            for command in ("killall -9 python3", "kill -9 1", "kill -9 -1"):
                await sandbox.bash(command, timeout_s=20)
            ran = await sandbox.bash("echo alive", timeout_s=20)
        finally:
            await sandbox.close()
        assert ran.output == "alive\n"

    async def test_memory_is_bounded_in_all(self) -> None:
        self._needs("memory")
        sandbox = await self.small()
        hold = 'python3 -c \'import time; data = b"x" * (180 << 20); time.sleep(4); print("kept")\''
        try:
            ran = await sandbox.exec(f"{hold} & {hold} & wait", timeout_s=30)
        finally:
            await sandbox.close()
        assert ran.output.splitlines().count("kept") < 2

    async def test_a_picture_is_a_png_of_the_screen_s_size(self) -> None:
        sandbox = await self.open_desktop()
        try:
            frame = await sandbox.screenshot(settle_s=5)
        finally:
            await sandbox.close()
        assert frame.png[:8] == b"\x89PNG\r\n\x1a\n" and (frame.width, frame.height) == sandbox.screen
        assert (int.from_bytes(frame.png[16:20], "big"), int.from_bytes(frame.png[20:24], "big")) == sandbox.screen

    async def test_actions_reach_a_window_and_what_can_t_be_done_is_refused(self) -> None:
        sandbox = await self.open_desktop()
        try:
            before = await sandbox.screenshot(settle_s=5)
            await sandbox.spawn(self.window[0])
            for _ in range(300):
                if any(self.window[1] in title for title in await sandbox.windows()):
                    break
                await asyncio.sleep(0.1)
            else:
                raise AssertionError(f"no window {self.window[1]}")
            await sandbox.screenshot(settle_s=8)
            await sandbox.act(Act("type", text="typed"))
            elements = await sandbox.elements()
            after = await sandbox.screenshot(settle_s=5)
            for wrong in (Act("left_click", x=100_000, y=5), Act("mouse_move"), Act("key", keys="no such key")):
                try:
                    await sandbox.act(wrong)
                except BadAction:
                    continue
                raise AssertionError(f"{wrong} was done")
        finally:
            await sandbox.close()
        assert before.png != after.png and any("typed" in element.text for element in elements)

    async def test_the_screen_outlives_whatever_the_agent_kills(self) -> None:
        self._needs("screen")
        sandbox = await self.open_desktop()
        try:
            await sandbox.screenshot()
            await sandbox.exec("pkill -9 Xvfb; kill -9 -1", timeout_s=20)
            assert (await sandbox.screenshot()).png
        finally:
            await sandbox.close()


class GraderContract:
    """Give `make`, `case` (criteria, task, rollout, state that it can grade) and `broken` (one whose check crashes)."""

    def make(self) -> Grader:
        raise NotImplementedError

    def case(self) -> Case:
        raise NotImplementedError

    def broken(self) -> Case:
        raise NotImplementedError

    async def _scores(self, case: Case) -> list[Score]:
        grader = self.make()
        try:
            return await grader.grade(*case)
        finally:
            await grader.aclose()

    async def test_one_score_per_criterion_in_order(self) -> None:
        criteria = self.case()[0]
        scores = await self._scores(self.case())
        assert [(s.criterion, s.weight, s.required) for s in scores] == [(c.id, c.weight, c.required) for c in criteria]
        assert all(s.value is not None and s.grader for s in scores)

    async def test_a_failure_of_the_grader_is_unscored_never_zero(self) -> None:
        scores = await self._scores(self.broken())
        assert scores and all(s.value is None and s.explanation for s in scores)


class AuthorContract:
    """Give `make`: an author that has something to propose, and the evidence it works from."""

    def make(self) -> tuple[Author, Evidence]:
        raise NotImplementedError

    async def test_a_proposal_carries_the_tree_that_its_id_names(self) -> None:
        author, evidence = self.make()
        proposal = await author.propose(evidence)
        assert proposal is not None and author.name
        assert harness_from_files(proposal.tree).id == proposal.candidate.harness_id
        assert proposal.candidate.parents and proposal.candidate.manifest.why


class ExecutorContract:
    """Give `make(workers)`."""

    def make(self, workers: int) -> Executor:
        raise NotImplementedError

    async def test_every_item_once_and_no_more_workers_than_allowed(self) -> None:
        running, most = 0, 0

        async def work(item: int) -> int:
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            await asyncio.sleep(0.01)
            running -= 1
            return item * item

        results = [r async for r in self.make(3).map(work, range(10))]
        assert sorted(results) == [n * n for n in range(10)]
        assert most <= 3

    async def test_a_failed_item_raises(self) -> None:
        async def work(item: int) -> int:
            if item == 2:
                raise ValueError("item 2 failed")
            return item

        try:
            async for _ in self.make(2).map(work, range(5)):
                pass
        except* ValueError as failed:
            assert "item 2 failed" in str(failed.exceptions[0])
        else:
            raise AssertionError("the failure of an item was swallowed")


class ObserverContract:
    """Give `make` (a fresh observer), `records` (some of every kind that matters to it), and `seen`: what a reader
    finds in the end, in which each of `told` must stand."""

    told: tuple[str, ...]

    def make(self) -> Observer:
        raise NotImplementedError

    def records(self) -> Sequence[Record]:
        raise NotImplementedError

    def seen(self) -> str:
        raise NotImplementedError

    def test_what_it_is_told_can_be_read_and_any_progress_is_taken(self) -> None:
        observer = self.make()
        for record in self.records():
            observer.on_record(record)
        observer.progress("race", 0, 0, {})
        observer.progress("race", 1, 2, {"success": None, "tokens": 3})
        observer.close()
        seen = self.seen()
        assert self.told and not [text for text in self.told if text not in seen], seen
