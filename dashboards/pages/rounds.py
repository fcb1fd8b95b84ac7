"""What was played with a frozen harness, and what has it produced? Also while it is being played."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboards import frame, rounds, theme, words
from evolver.figures.rounds import instruments, rejections
from evolver.intervals import nothing, wilson
from evolver.phrasing import UNKNOWN, count, dollars
from evolver.records import Interval
from evolver.rounds.rows import Reason
from evolver.rounds.view import RoundView

STATES = {
    "running": "◆ running", "paused": "◇ paused", "stopped": "■ stopped", "alarm": "✕ alarm", "complete": "● complete",
}  # fmt: skip
REASONS: dict[Reason, str] = {
    "infra": "nobody could score it (ours)",
    "state": "a check program says no",
    "judge": "the judge says no",
    "length": "too long",
    "duplicate": "said before",
}
MOST_SHARDS = 200
NEXT = "evolver generate CAPSULE --tasks SET --n 2000 --out ROUND"


def page() -> None:
    st.header("What was played with a frozen harness, and what has it produced?", anchor=False)
    found = {path: rounds.view_of(path) for path in rounds.find_rounds(frame.root())}
    for path, view in found.items():
        if isinstance(view, str):
            st.error(f"`{path}`: {view}")
    seen = {path: view for path, view in found.items() if isinstance(view, RoundView)}
    if not seen:
        st.info("No generation round here yet. A released capsule is played with:")
        st.code(NEXT, language="bash")
        return
    if len(seen) > 1:
        _list(seen)
    path = _chosen(seen)
    _progress(str(path))
    _told(seen[path])


def _chosen(seen: dict[Path, RoundView]) -> Path:
    by_name = {_name(path): path for path in seen}
    if len(by_name) == 1:
        return next(iter(seen))
    asked = st.query_params.get("round")
    if asked is not None and asked not in by_name:
        st.warning(f"No round `{asked[:80]}` here; the newest is shown.")
    chosen = st.selectbox("round", list(by_name), key="round", bind="query-params")
    return by_name.get(str(chosen), next(iter(seen)))


def _name(path: Path) -> str:
    root = frame.root()
    return path.name if path == root else str(path.relative_to(root))


def _list(seen: dict[Path, RoundView]) -> None:
    rows = [
        {
            "round": _name(path),
            "state": STATES[view.state],
            "capsule": view.capsule,
            "tasks": f"{view.n_tasks:,} of {view.tasks}",
            "done": f"{view.done:,} of {view.planned:,}",
            "accepted": f"{view.accepted:,} ({_yield(view)})",
            "per accepted": words.usd(_each(view)),
            "with one-off": dollars(view.usd_per_accepted_all_in),
            "suspect shards": sum(bool(shard.suspect) for shard in view.shards),
            "started": words.moment(view.started_at, frame.zone()),
        }
        for path, view in seen.items()
    ]
    st.dataframe(rows, hide_index=True)


@st.fragment(run_every=frame.REFRESH_S)
def _progress(asked: str) -> None:
    """The strip that moves while a round is played; the rest of the page changes when the reader asks for it."""
    view = rounds.view_of(Path(asked))
    if isinstance(view, str):
        st.error(view)
        return
    heard = f"heard of {words.moment(view.heard_at, frame.zone())}" if view.heard_at is not None else "not heard of"
    left = f" · about {_lasting(view.left_s)} left" if view.left_s is not None and view.done < view.planned else ""
    way = f" · {view.under_way:,} under way" if view.under_way else ""
    line = f"{STATES[view.state]} · {view.done:,} of {view.planned:,} units{way}{left} · {heard}"
    st.progress(min(1.0, view.done / view.planned) if view.planned else 0.0, text=line)
    if view.state == "alarm":
        st.error(f"Stopped by an instrument: {view.why}. What came since its last good look is left out by default.")
    elif view.state == "paused":
        st.warning(f"Paused: {view.why}. It goes on by itself when answers come again.")
    elif view.state == "stopped":
        st.info("Nothing drives it now: the command that started it goes on where it was.")


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def _told(view: RoundView) -> None:
    st.caption(
        f"capsule {view.capsule} ({view.capsule_id[:12]}) · harness {view.harness_id[:12]} · {view.model_id} · "
        f"{view.n_tasks:,} tasks of {view.tasks} · {view.path}"
    )
    first, second, third, fourth = st.columns(4)
    each = dollars(view.spent_usd / view.done) if view.done else UNKNOWN
    frame.card(first, "accepted", count(view.accepted), f"{_yield(view)} of {view.done:,} units, {each} a unit")
    frame.card(second, "success", words.percent(view.success), f"over {view.success.n:,} units that could be scored")
    one_off = f"one-off cost {dollars(view.one_off_usd)}, with it {dollars(view.usd_per_accepted_all_in)} each"
    per_accepted = _each(view)
    frame.card(third, "cost per accepted", words.usd(per_accepted), f"{per_accepted.n:,} units · {one_off}")
    parts = f"of it {dollars(view.wasted_usd)} for lost attempts, {dollars(view.probes_usd)} for probes"
    missing = f" · {view.unknown_costs:,} calls of unknown cost are in no sum" if view.unknown_costs else ""
    frame.card(fourth, "spent", dollars(view.spent_usd), f"{parts} · {view.tokens:,} tokens{missing}")
    left, right = st.columns(2)
    with left:
        _turned_away(view)
    with right:
        _watched(view)
    _shards(view)


def _accepted(view: RoundView) -> Interval:
    return wilson(view.accepted, view.accepted + view.rejected, "units")


def _yield(view: RoundView) -> str:
    return words.percent(_accepted(view))


def _each(view: RoundView) -> Interval:
    """Dollars an accepted unit: what a unit costs, over the share that is accepted, which is what is not sure."""
    share, usd = _accepted(view), view.usd_per_accepted
    if usd is None or not share.point or not share.low or not share.high:
        return nothing("none is accepted yet")
    unit = usd * share.point
    return Interval(point=usd, low=unit / share.high, high=unit / share.low, n=share.n, method=share.method)


def _turned_away(view: RoundView) -> None:
    st.subheader("Why attempts were turned away", anchor=False)
    counts = {REASONS.get(reason, reason): n for reason, n in view.rejections.items()}
    said = "; ".join(f"{n:,} {reason}" for reason, n in counts.items()) or "none"
    frame.draw(
        rejections(counts, view.accepted),
        alt=f"{view.accepted:,} accepted; turned away: {said}",
        key="round_rejections",
    )
    ways = ", ".join(f"{theme.CHANNELS[c].label} {n:,}" for c, n in view.channels.items() if c in theme.CHANNELS)
    st.caption(
        f"{view.accepted:,} accepted, {view.rejected:,} turned away: {said}. Failures of our own are no score. "
        f"Channels of the accepted: {ways or UNKNOWN}."
    )


def _watched(view: RoundView) -> None:
    st.subheader("Has anything drifted?", anchor=False)
    if not view.instruments:
        st.caption("No instrument has been read yet.")
    else:
        off = [one.name for one in view.instruments if one.alarm]
        alarms = (
            f"alarm of {', '.join(off)}" if off else f"none of {len(view.instruments)} instruments raises its alarm"
        )
        frame.draw(instruments(view.instruments), alt=alarms, key="round_instruments")
        learning = [one.name for one in view.instruments if one.expected is None]
        tail = f" Still taking their first looks: {', '.join(learning)}." if learning else ""
        st.caption(f"{alarms[0].upper()}{alarms[1:]}; the line is where one does.{tail}")
    if view.looks:
        rows = [
            {
                "probe": look.probe,
                "look": look.name,
                "outcome": "✕ off" if look.off else "● as expected",
                "after": f"{look.after_units:,} units",
                "detail": look.detail,
                "when": words.moment(look.at, frame.zone()),
            }
            for look in view.looks
        ]
        st.dataframe(rows, hide_index=True, height=min(38 + 35 * len(rows), 320))
        st.caption(f"The last {len(rows)} looks of the probes.")


def _shards(view: RoundView) -> None:
    st.subheader("What is kept", anchor=False)
    suspects = [shard for shard in view.shards if shard.suspect]
    if not view.shards:
        st.caption("No shard is closed yet.")
        return
    said = f"{view.usable:,} of {view.accepted:,} accepted units are in shards that no instrument doubts"
    root = f" · dataset root {view.root[:16]}" if view.root else ""
    st.caption(
        f"{len(view.shards):,} shard{'s' * (len(view.shards) != 1)}, {len(suspects):,} of them suspect · {said}{root}"
    )
    shown = [*suspects, *(shard for shard in view.shards if not shard.suspect)][:MOST_SHARDS]
    if len(shown) < len(view.shards):
        st.caption(f"The first {len(shown):,} of {len(view.shards):,}, suspect ones first.")
    rows = [
        {
            "shard": shard.number,
            "file": shard.file,
            "rows": count(shard.rows),
            "accepted": count(shard.accepted),
            "kB": f"{shard.bytes / 1e3:,.0f}",
            "suspect": f"✕ {shard.suspect}" if shard.suspect else "● no",
        }
        for shard in shown
    ]
    st.dataframe(rows, hide_index=True, height=min(38 + 35 * len(rows), 420))


if __name__ == "__main__":
    page()
