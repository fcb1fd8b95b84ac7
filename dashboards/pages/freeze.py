"""What should a generation round be played with? A promoted harness is frozen as a capsule, by a process of its own
that is the same as `evolver freeze`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboards import frame, starting, words
from dashboards.views import Story
from evolver.errors import UsageError
from evolver.freeze import TAG, CapsuleOfRun, Wanted, check, place_of
from evolver.live import worker
from evolver.phrasing import UNKNOWN, count
from evolver.records import Freeze, Release
from evolver.report import effect_of
from evolver.store import Store
from harnesses.library import Library

STATES = {"under way": "◇ under way", "released": "● released", "refused": "✕ refused"}
EVERY = "2s"


def page() -> None:
    story = frame.story()
    st.header("What should a generation round be played with?", anchor=False)
    st.caption(
        "A frozen harness is a capsule: everything a round depends on, pinned. It is played from its own bytes on the "
        "tasks of its confirmation, and released only when it does as well as it was promoted for."
    )
    promoted = {story.harness_labels[d.candidate_harness]: d for d in reversed(story.population.promotions)}
    if not promoted:
        st.info("There is nothing to freeze yet: only a promoted harness can be, and this run has none.")
        return
    left, right = st.columns([2, 3])
    with left:
        asked = st.query_params.get("h_freeze")
        if asked is not None and asked not in promoted:
            st.warning(f"`{asked[:80]}` is no promoted harness of this run; the newest one is taken.")
        chosen = str(st.selectbox("harness", list(promoted), key="h_freeze", bind="query-params"))
        label = chosen if chosen in promoted else next(iter(promoted))
        harness = promoted[label].candidate_harness
        _evidence(story, label)
        _ask(story, harness)
    with right:
        _capsules(story)
        _under_way()


def _evidence(story: Story, label: str) -> None:
    """What the promotion rests on."""
    decision = next(
        d for d in reversed(story.population.promotions) if story.harness_labels[d.candidate_harness] == label
    )
    effect, where = effect_of(decision)
    made = story.evaluation(decision.candidate_harness)
    success = f"{words.percent(made.success)}, {made.n_tasks} tasks ({made.purpose})" if made else UNKNOWN
    n = effect.n if effect else 0
    st.markdown(
        f"- **harness** {decision.candidate_harness[:12]}\n"
        f"- **success** {success}\n"
        f"- **lead** {words.points(effect)} over {story.name(decision.incumbent_harness)} ({where}, {n} paired tasks)\n"
        f"- **verdict** {decision.verdict}, {words.moment(decision.decided_at, frame.zone())}"
    )


def _ask(story: Story, harness: str) -> None:
    known = {begun.name for begun in story.run.all(Freeze)}
    name = (st.text_input("name of the capsule", key="z_name", placeholder="beta1-1", max_chars=70) or "").strip()
    short = words.short(harness)
    sure = (st.text_input(f"type {short} to confirm", key="z_sure", max_chars=12) or "").strip()
    driver = worker(story.run.path)
    lacking = (
        "these pages are read-only" if frame.read_only()
        else f"process {driver} is working on this run; wait for it or stop it" if driver is not None
        else "it needs a name" if not name
        else f"the confirmation is not {short}" if sure != short else ""
    )  # fmt: skip
    word = "Go on" if name in known else "Freeze"
    pressed = st.button(word, icon=":material/ac_unit:", type="primary", disabled=bool(lacking))
    st.caption("Nothing is frozen yet: " + lacking + "." if lacking else f"It runs `{_command(story, harness, name)}`.")
    if pressed and not lacking:
        _freeze(story, harness, name)


def _command(story: Story, harness: str, name: str) -> str:
    return f"evolver freeze {story.run.path} {words.short(harness)} --name {name}"


def _freeze(story: Story, harness: str, name: str) -> None:
    """Checks as the command does, then starts it; what is on record already is not done again."""
    store, library = Store.open(story.run.path), Library(story.run.path / "library")
    try:
        check(store, library, Wanted(harness, name))
    except UsageError as error:
        st.error(str(error), icon=":material/block:")
        return
    finally:
        library.close()
    if any(made.name == name for made in store.all(Release)):
        st.info(f"Capsule {name} has its verdict already; nothing is started.")
        return
    starting.start(("freeze", str(story.run.path), harness, "--name", name), _log(story.run.path, name))
    st.session_state["z_started"] = name
    st.rerun()


def _log(run: Path, name: str) -> Path:
    """Named in the run's folder by what `check` has found to be a plain name."""
    return run / f"freeze-{name}.log"


def _capsules(story: Story) -> None:
    st.subheader("Capsules of this run", anchor=False)
    verdicts = {release.freeze_id: release for release in story.run.all(Release)}
    made = [CapsuleOfRun(begun, verdicts.get(begun.id)) for begun in story.run.all(Freeze)]
    if not made:
        st.caption("None yet.")
        return
    store = Store.open(story.run.path)
    rows = []
    for one in reversed(made):
        done = one.release
        rows.append(
            {
                "capsule": one.freeze.name,
                "state": STATES.get(one.state, one.state),
                "harness": story.name(one.freeze.harness_id),
                "success": words.percent(done.success) if done else "being played",
                "expected": words.percent(one.freeze.expected),
                "attempts": f"{count(one.freeze.attempts)} at {count(one.freeze.n_tasks)} tasks",
                "unscored": count(done.n_unscored) if done else UNKNOWN,
                "why": "; ".join(done.reasons) if done else "",
                "tag": done.tag if done else "",
                "id": one.freeze.capsule_id[:12],
                "where": str(place_of(store, one.freeze)),
                "begun": words.moment(one.freeze.at, frame.zone()),
            }
        )
    st.dataframe(rows, hide_index=True)
    released = next((one for one in reversed(made) if one.state == "released"), None)
    if released is not None:
        st.caption(f"A round of it: `evolver generate {place_of(store, released.freeze)} --tasks train --out ROUND`.")


@st.fragment(run_every=EVERY)
def _under_way() -> None:
    """What the newest freezing says, while it runs and after it; the page itself changes when the reader asks."""
    story = frame.story()
    logs = sorted(story.run.path.glob("freeze-*.log"), key=lambda log: log.stat().st_mtime)
    found = starting.look(logs[-1], story.run.path) if logs else None
    if found is None:
        return
    name = logs[-1].stem.removeprefix("freeze-")
    ended = "ended" if found.code is None else "done" if found.code == 0 else f"ended with exit code {found.code}"
    state = "running" if found.running else ended
    st.markdown(f"**{name}** · {state} · tag when released: `{TAG}{name}`")
    st.code("\n".join(found.lines), language=None, wrap_lines=True)


if __name__ == "__main__":
    page()
