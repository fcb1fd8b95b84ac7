"""Caps hold for every role, from one ledger, and nothing unknown passes as free."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.budget import Budget
from evolver.config import Cap, Caps, OpenAISpec, Price, RunConfig, TaskLimitsConfig
from evolver.errors import BudgetSpent, UsageError
from evolver.protocols import UNKNOWN_USAGE
from evolver.records import LedgerEntry, Role, Usage
from evolver.store import Store
from tests.evolver.sample_run import ledger


def budget(path: Path, config: RunConfig) -> tuple[Store, Budget]:
    store = Store.create(path, config)
    return store, Budget(store, store.config.caps)


def test_e13_an_unpriced_call_stops_but_is_kept_in_the_ledger(tmp_path: Path) -> None:
    store, one = budget(tmp_path / "run", RunConfig())
    with pytest.raises(UsageError, match=r"'gpt-x' as author has no known cost.*allow_unpriced"):
        one.charge(ledger("a", role="author", model_id="gpt-x", cost_usd=None))
    assert [entry.id for entry in store.all(LedgerEntry)] == ["a"]
    _, allowed = budget(tmp_path / "other", RunConfig(allow_unpriced=True))
    allowed.charge(ledger("a", role="author", model_id="gpt-x", cost_usd=None))
    assert (allowed.spent().unknown_cost, allowed.spent().cost_usd) == (1, 0.0)


def test_e13_a_priced_model_without_token_counts_is_told_apart_from_one_without_a_price(tmp_path: Path) -> None:
    store, one = budget(tmp_path / "run", RunConfig(prices={"gpt-x": Price(input=1, output=2)}))
    with pytest.raises(UsageError, match=r"reported no token counts.*an endpoint that reports usage") as raised:
        one.charge(ledger("a", role="teacher", model_id="gpt-x", input_tokens=None, cost_usd=None))
    assert "add [prices" not in str(raised.value) and len(store.all(LedgerEntry)) == 1


def test_e13_a_teacher_without_a_price_never_starts() -> None:
    with pytest.raises(ValueError, match="no price for model 'gpt-x'"):
        RunConfig(teacher=OpenAISpec(kind="openai", model="gpt-x"))


def test_e13_a_billed_model_that_is_called_a_student_is_billed(tmp_path: Path) -> None:
    _, one = budget(tmp_path / "run", RunConfig(prices={"student-70b": Price(input=2.0, output=10.0)}))
    assert one.price("student-70b", 1_000_000, 0) == pytest.approx(2.0)
    assert one.price("student-0123456789ab", 1_000_000, 0) == 0.0


def test_e13_prices_come_from_the_config_and_only_declared_models_are_free(tmp_path: Path) -> None:
    prices = {"gpt-x": Price(input=2.0, output=10.0)}
    _, one = budget(tmp_path / "run", RunConfig(prices=prices, tasks=TaskLimitsConfig(dev=2)))
    assert one.price("gpt-x", 1_000_000, 100_000) == pytest.approx(3.0)
    assert one.price("gpt-x", 1_000, None) is None
    assert one.price("gpt-y", 1_000, 10) is None
    assert one.price("demonstrator(slip_rate=0.05)", None, None) == one.price("student-1", 1, 1) == 0.0


@pytest.mark.parametrize("role", ["author", "teacher", "judge", "student"])
def test_e14_the_total_cap_holds_whoever_spends(tmp_path: Path, role: Role) -> None:
    _, one = budget(tmp_path / "run", RunConfig(caps=Caps(tokens=2_500)))
    for number in range(3):
        one.check("teacher")
        one.charge(ledger(str(number), role=role))
    with pytest.raises(BudgetSpent, match=r"caps\.tokens = 2,500 is spent \(3,000 used\)"):
        one.check("author")


def test_e14_a_role_has_its_own_cap(tmp_path: Path) -> None:
    caps = Caps(author=Cap(cost_usd=1.0), student=Cap(rollouts=2))
    _, one = budget(tmp_path / "run", RunConfig(caps=caps))
    one.charge(ledger("a", role="author", cost_usd=1.25))
    one.charge(ledger("b", role="student", rollout_id="r-1"))
    one.check("student")
    one.charge(ledger("c", role="student", rollout_id="r-2"))
    one.check("teacher")
    for role, cap in (("author", "caps.author.cost_usd"), ("student", "caps.student.rollouts")):
        with pytest.raises(BudgetSpent, match=cap):
            one.check(role)  # type: ignore[arg-type]


def test_e17_raising_the_cap_goes_on_with_everything_paid_for(tmp_path: Path) -> None:
    _, one = budget(tmp_path / "run", RunConfig(caps=Caps(rollouts=1)))
    one.charge(ledger("a"))
    with pytest.raises(BudgetSpent):
        one.check("teacher")
    _, raised = budget(tmp_path / "run", RunConfig(caps=Caps(rollouts=2)))
    raised.check("teacher")
    assert raised.spent().rollouts == 1


def test_s37_unknown_tokens_are_counted_as_unknown_and_can_not_slip_under_a_cap(tmp_path: Path) -> None:
    _, free = budget(tmp_path / "free", RunConfig())
    free.charge(ledger("a", input_tokens=None, output_tokens=None))
    free.check("teacher")
    assert (free.spent().tokens, free.spent().unknown_tokens) == (0, 1)
    _, capped = budget(tmp_path / "capped", RunConfig(caps=Caps(tokens=10_000)))
    capped.charge(ledger("a", input_tokens=None, output_tokens=None))
    with pytest.raises(UsageError, match="unknown token counts"):
        capped.check("teacher")


def test_s38_each_call_counts_once_also_when_written_again_or_by_a_child(tmp_path: Path) -> None:
    store, one = budget(tmp_path / "run", RunConfig())
    one.charge(ledger("a"))
    one.charge(ledger("a"))
    Store.open(store.path).append(ledger("b", role="student"))
    assert (one.spent().calls, one.spent("student").calls, one.spent("judge").calls) == (6, 3, 0)
    _, resumed = budget(tmp_path / "run", RunConfig())
    assert (resumed.spent().calls, resumed.spent().tokens) == (6, 2_000)


def test_e13_tries_without_a_reply_are_counted_as_unknown_and_no_cap_waits_for_them(tmp_path: Path) -> None:
    caps = Caps(tokens=10_000, author=Cap(cost_usd=1.0))
    store, one = budget(tmp_path / "run", RunConfig(caps=caps, prices={"gpt-x": Price(input=1.0, output=2.0)}))
    stated = Usage(input_tokens=1_000, output_tokens=500, counted_by="provider")
    assert one.charge_spoiled("author", "gpt-x", []) is None
    known = one.charge_spoiled("author", "gpt-x", [stated, stated])
    one.charge_spoiled("author", "gpt-x", [UNKNOWN_USAGE], "r-1")
    assert known is not None and (known.calls, known.cost_usd) == (2, pytest.approx(0.004))
    spent = one.spent("author")
    assert (spent.calls, spent.tokens, spent.unknown_tokens, spent.unknown_cost) == (3, 3_000, 1, 1)
    one.check("author")
    assert spent.unknown_replies == (0, 0)
    assert [entry.rollout_id for entry in store.all(LedgerEntry)] == [None, "r-1"]
    one.charge(ledger("a", input_tokens=None, output_tokens=None))
    with pytest.raises(UsageError, match="1 ledger entries have unknown token counts"):
        one.check("author")
