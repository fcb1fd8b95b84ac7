"""An endpoint that is down, or refuses: whose fault that is, and that no verdict rests on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from devset.task import Split, Task
from evolver.compare import Arms, compare
from evolver.config import HumanAuthor, RaceConfig
from evolver.decide import Case
from evolver.errors import NotReady, ProviderFailed, UsageError
from evolver.finalize import finalize
from evolver.lab import PATIENCE, Attempt, Lab
from evolver.loop import run
from evolver.protocols import Request
from evolver.race import Grounds, facts_of
from evolver.records import Completion, Decision, Failure, Final, LedgerEntry, Rollout
from evolver.stops import Stop
from harnesses.edit import with_changes
from harnesses.tree import harness_from_files, read_tree, seed_path, write_tree
from tests.evolver.cards import Coin, a_candidate, a_task, coin_lab, split_tasks
from tests.evolver.test_finalize import config as final_config
from tests.evolver.test_finalize import ended
from tests.evolver.test_loop import Students, config, shell_helps


class Faulty(Coin):
    """Raises what `fault` says of a request and of how many were answered before it."""

    def __init__(self, fault: Callable[[Request, int], Exception | None]) -> None:
        super().__init__(shell_helps)
        self.fault = fault

    async def complete(self, request: Request) -> Completion:
        error = self.fault(request, self.calls)
        if error is not None:
            raise error
        return await super().complete(request)


def down_after(calls: int) -> Faulty:
    return Faulty(lambda request, answered: ProviderFailed("down") if answered >= calls else None)


def numbered(split: Split, limit: int | None = None) -> list[Task]:
    """Tasks that a request tells apart."""
    return [a_task(n, split, instruction=f"Do {split} {n}.") for n in range(limit or 12)]


def told(decisions: list[Decision]) -> list[dict[str, object]]:
    return [d.model_dump(exclude={"decided_at"}) for d in decisions]


def changed(path: Path, **changes: object) -> HumanAuthor:
    """Who proposes beta1 with these changes (`__` for the dots)."""
    tree = with_changes(read_tree(seed_path("beta1")), {k.replace("__", "."): v for k, v in changes.items()})  # type: ignore[misc]
    write_tree(harness_from_files(tree), path)
    return HumanAuthor(kind="human", harness=str(path), why="w")


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [0, 1])
async def test_s39_a_harness_whose_requests_are_refused_is_rejected_and_the_run_goes_on(
    answered: int, tmp_path: Path
) -> None:
    """At once, or after so many calls of each of its attempts, which are billed."""

    class TooLong(Coin):
        async def complete(self, request: Request) -> Completion:
            reply = await super().complete(request)
            if request.sampling.max_tokens <= 16_000:
                return reply
            if sum(message.role == "assistant" for message in request.messages) >= answered:
                raise UsageError("HTTP 400: max_tokens is too large")
            return reply.model_copy(update={"text": "I think.", "calls": ()})

    people = (
        changed(tmp_path / "long", scaffold__sampling__max_tokens=32_000),
        HumanAuthor(kind="human", harness="beta1", why="w"),
    )
    lab = coin_lab(tmp_path / "run", config(authors=people), TooLong(shell_helps))
    end = await run(lab, tasks=split_tasks, distil=Students(lab))
    assert end.reason is Stop.AUTHORS_DONE
    refused, other = lab.store.all(Decision)
    assert (refused.verdict, refused.looks, refused.alpha_spent) == ("reject", (), 0.0)
    assert "refused: HTTP 400: max_tokens is too large" in refused.reasons[0] and other.verdict == "promote"
    tried = [r for r in lab.store.all(Rollout) if r.key.harness_id == refused.candidate_harness]
    assert [(len(r.turns), r.retry_of) for r in tried] == [(answered, None)] * 2


async def test_a_task_whose_first_request_is_refused_is_unscored_and_stops_nothing(tmp_path: Path) -> None:
    filtered = UsageError("HTTP 400: filtered")
    lab = coin_lab(
        tmp_path / "run",
        config(),
        Faulty(lambda request, answered: filtered if "Do dev 0." in str(request.messages) else None),
    )
    end = await run(lab, tasks=numbered, distil=Students(lab))
    assert end.reason is Stop.AUTHORS_DONE and lab.store.all(Decision)[0].verdict == "promote"
    refused = [r for r in lab.store.all(Rollout) if r.key.task_id == "dev-0"]
    assert refused and {r.error.kind for r in refused if r.error} == {"refused"}
    asked = [entry for entry in lab.store.all(LedgerEntry) if entry.rollout_id is None]
    assert len(asked) == len(refused) and {(entry.role, entry.calls) for entry in asked} == {("teacher", 1)}


# --- outages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("purpose", ["race", "confirm"])
async def test_an_outage_decides_nothing_and_the_next_start_decides_as_if_there_had_been_none(
    purpose: str, tmp_path: Path
) -> None:
    whole = coin_lab(tmp_path / "whole", config(), Coin(shell_helps))
    await run(whole, tasks=split_tasks, distil=Students(whole))
    first = whole.store.all(Decision)[0].candidate_harness
    played = [(r.key.purpose, r.key.harness_id) for r in whole.store.all(Rollout)]
    cut = coin_lab(tmp_path / "cut", config(), down_after(played.index((purpose, first)) + 6))  # type: ignore[arg-type]
    end = await run(cut, tasks=split_tasks, distil=Students(cut))
    assert end.reason is Stop.ERROR and "got no answer" in end.detail and "down" in end.detail
    assert cut.store.all(Decision) == []
    again = coin_lab(tmp_path / "cut", config(), Coin(shell_helps))
    await run(again, tasks=split_tasks, distil=Students(again))
    assert told(again.store.all(Decision)) == told(whole.store.all(Decision))


async def test_a_harness_that_alone_gets_no_answers_is_decided_in_the_end(tmp_path: Path) -> None:
    slow = [f"Do dev {n}." for n in range(6, 12)]

    def times_out(request: Request, answered: int) -> Exception | None:
        asked = str(request.messages)
        return ProviderFailed("timeout") if "ponder" in asked and any(text in asked for text in slow) else None

    people = (changed(tmp_path / "slow", prompt__system="ponder"),)
    ends = []
    for _ in range(PATIENCE):
        lab = coin_lab(tmp_path / "run", config(authors=people), Faulty(times_out))
        ends.append((await run(lab, tasks=numbered, distil=Students(lab))).reason)
    assert ends == [Stop.ERROR] * (PATIENCE - 1) + [Stop.AUTHORS_DONE]
    [decision] = lab.store.all(Decision)
    assert decision.verdict == "inconclusive" and "scored in both arms" in decision.reasons[-1]


@pytest.mark.parametrize("alone", [True, False])
async def test_a_harness_that_gets_no_answer_at_all_is_rejected_in_the_end_where_others_get_one(
    alone: bool, tmp_path: Path
) -> None:
    people = (changed(tmp_path / "slow", prompt__system="ponder"),)

    def times_out(request: Request, answered: int) -> Exception | None:
        silent = "ponder" in str(request.messages) or (not alone and not request.tools)
        return ProviderFailed("timeout") if silent else None

    ends = []
    for _ in range(PATIENCE):
        lab = coin_lab(tmp_path / "run", config(authors=people), Faulty(times_out))
        ends.append((await run(lab, tasks=numbered, distil=Students(lab))).reason)
    assert ends == [Stop.ERROR] * (PATIENCE - 1) + [Stop.AUTHORS_DONE if alone else Stop.ERROR]
    verdicts = [(d.verdict, d.reasons[0][:25]) for d in lab.store.all(Decision)]
    assert verdicts == ([("reject", "smoke test: no verdict in")] if alone else [])


async def test_a_final_comparison_does_not_wait_for_an_endpoint_that_refuses(tmp_path: Path) -> None:
    await ended(tmp_path / "run")
    refused = [f"Do test {n}." for n in range(6)]
    model = Faulty(lambda r, _: UsageError("filtered") if any(text in str(r.messages) for text in refused) else None)
    final = await finalize(coin_lab(tmp_path / "run", final_config(), model), tasks=numbered)
    assert [arm.n_unscored for arm in final.arms] == [12, 12] and "too few attempts are scored" in final.notes[0]


async def test_a_final_comparison_does_not_wait_for_ever_for_tasks_that_alone_get_no_answer(tmp_path: Path) -> None:
    await ended(tmp_path / "run")
    slow = [f"Do test {n}." for n in range(6)]
    model = Faulty(lambda r, _: ProviderFailed("timeout") if any(text in str(r.messages) for text in slow) else None)
    for _ in range(PATIENCE - 1):
        with pytest.raises(NotReady, match="24 of"):
            await finalize(coin_lab(tmp_path / "run", final_config(), model), tasks=numbered)
    final = await finalize(coin_lab(tmp_path / "run", final_config(), model), tasks=numbered)
    assert [arm.n_unscored for arm in final.arms] == [12, 12]


async def test_g44_a_final_comparison_waits_for_an_endpoint_that_is_down(tmp_path: Path) -> None:
    wanted = await finalize(await ended(tmp_path / "whole"), tasks=split_tasks)
    await ended(tmp_path / "cut")
    with pytest.raises(NotReady, match=r"attempts got no answer .*down"):
        await finalize(coin_lab(tmp_path / "cut", final_config(), down_after(10)), tasks=split_tasks)
    again = coin_lab(tmp_path / "cut", final_config(), Coin(shell_helps))
    assert not again.store.all(Final)
    found = await finalize(again, tasks=split_tasks)
    assert found.model_dump(exclude={"at"}) == wanted.model_dump(exclude={"at"})


# --- what is ours ---------------------------------------------------------------------------------------------------


async def two_arms(path: Path) -> tuple[Lab, Case, Grounds]:
    lab = coin_lab(path, config(), Coin(shell_helps))
    ours, theirs = lab.library.add_seed("beta1"), lab.library.add_seed("alpha")
    dev = split_tasks("dev", 4)
    cards = [await lab.score([Attempt(h, task, "race") for task in dev]) for h in (ours, theirs)]
    arms = Arms(cards[0], cards[1], len(dev), 1)
    candidate = a_candidate("c").model_copy(update={"harness_id": ours})
    return lab, Case(candidate, theirs, (), compare(arms, RaceConfig(), 0.1, 0), arms, None, 0.0), Grounds(dev, [])


async def test_what_an_outage_or_a_stop_of_the_program_ended_is_not_lost_by_us_nor_tried(tmp_path: Path) -> None:
    lab, case, grounds = await two_arms(tmp_path / "run")
    played = next(r for r in lab.store.all(Rollout) if r.key.harness_id == case.candidate.harness_id)
    for kind, blame in (("interrupted", "platform"), ("sandbox_lost", "sandbox"), ("provider", "provider")):
        error = Failure.model_validate({"kind": kind, "blame": blame, "message": "m"})
        lab.record(played.model_copy(update={"id": f"r-{kind}", "error": error, "state_sha256": None}))
    assert facts_of(lab, case, grounds).lost == ((1, 4 + 1), (0, 4))
