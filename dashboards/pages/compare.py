"""What differs between two harnesses, and what did it change? Also across two runs."""

from __future__ import annotations

import streamlit as st

from dashboards import frame, words
from dashboards.queries import side
from dashboards.shelf import difference
from dashboards.views import Story
from evolver import pairing
from evolver.compare import Comparison
from evolver.figures import compare as compare_charts
from evolver.pairing import Kind, Pairing
from evolver.phrasing import percent

PARTS = {"F": "F scaffold", "T": "T tools", "P": "P prompt", "E": "E environment"}
Picked = tuple[Story, str]


def page() -> None:
    st.header("What differs between two harnesses, and what did it change?", anchor=False)
    picked = _bar()
    if picked is None:
        return
    a, b = picked
    if a[0].run.path == b[0].run.path and a[1] == b[1]:
        st.info("Both sides are the same harness of the same run: there is nothing to compare.")
        return
    kind = _kind(a, b)
    if kind is None:
        st.warning("The two have nothing in common: they never played the same split for the same purpose and model.")
        _say_kinds(a, b)
        _difference(a, b)
        return
    found = Pairing(side(a[0].run, a[1], kind), side(b[0].run, b[1], kind))
    _banner(found)
    if isinstance(found.gap, str):
        st.error(f"No gap is shown: {found.gap}.")
        _difference(a, b)
        return
    names = (f"A {a[0].name(a[1])}", f"B {b[0].name(b[1])}")
    _gap(found, found.gap, names, kind)
    left, right = st.columns(2)
    with left:
        _difference(a, b)
    with right:
        _forest(found, found.gap)
    _concordance(found, a, b, kind)


def _bar() -> tuple[Picked, Picked] | None:
    """The two harnesses that the address or the reader names; None (and a word why) when one is not there."""
    places = st.columns([4, 1, 4], vertical_alignment="bottom")
    with places[0]:
        a = _pick("base", "A (baseline)")
    with places[2]:
        b = _pick("cand", "B (candidate)")
    places[1].button("swap", icon=":material/swap_horiz:", on_click=_swap, disabled=a is None or b is None)
    return None if a is None or b is None else (a, b)


def _swap() -> None:
    for one, other in (("base", "cand"), ("base_run", "cand_run")):
        if one in st.session_state and other in st.session_state:
            st.session_state[one], st.session_state[other] = st.session_state[other], st.session_state[one]


def _pick(key: str, label: str) -> Picked | None:
    story = _story(key, label)
    if story is None:
        return None
    by_label = {story.harness_labels[h]: h for h in story.run.distinct("harness_id")}
    asked = st.query_params.get(key)
    if not by_label:
        st.info("No attempt has been written in this run yet.")
        return None
    if asked is not None and asked not in by_label:
        st.warning(f"No harness `{asked[:80]}` was played in this run: nothing is compared.")
    default = story.root if key == "base" else story.incumbent
    options = list(by_label)
    index = options.index(story.harness_labels[default]) if default in by_label.values() else 0
    chosen = st.selectbox(label, options, index=index, key=key, bind="query-params")
    if asked is not None and asked not in by_label:
        return None
    return story, by_label[str(chosen)]


def _story(key: str, label: str) -> Story | None:
    """The run of one side: the one that the bar shows, unless several are there to choose from."""
    here = frame.story()
    others = frame.other_runs()
    if not others:
        return here
    names = [here.run.path.name, *(path.name for path in others)]
    asked = st.query_params.get(f"{key}_run")
    if asked is not None and asked not in names:
        st.warning(f"No run `{asked[:80]}` here: nothing is compared.")
        return None
    chosen = str(st.selectbox(f"run of {label}", names, key=f"{key}_run", bind="query-params"))
    return here if chosen == here.run.path.name else frame.story_of(chosen)


def _kind(a: Picked, b: Picked) -> Kind | None:
    """What both were played for; races on dev, unless the reader wants another."""
    found = pairing.kinds_in_common(a[0].run.kinds(a[1]), b[0].run.kinds(b[1]))
    if len(found) < 2:
        return found[0] if found else None
    by_label = {f"{split} ({purpose}), {model}": (split, purpose, model) for split, purpose, model in found}
    chosen = st.selectbox("attempts", list(by_label), key="cmp_on", bind="query-params")
    return by_label.get(str(chosen), found[0])


def _say_kinds(a: Picked, b: Picked) -> None:
    for letter, (story, harness) in (("A", a), ("B", b)):
        kinds = "; ".join(f"{s} ({p}) by {m}" for s, p, m in story.run.kinds(harness)) or "nothing that may be shown"
        st.caption(f"{letter} was played on {kinds}.")


def _banner(found: Pairing) -> None:
    unpaired = sum(found.unpaired.values())
    every = len(found.tasks) + unpaired
    line = f"{len(found.tasks)} of {every} tasks pair (same id, version, attempt number and seed)"
    if not unpaired:
        st.caption(f"{line}.")
    else:
        why = "; ".join(f"{n}: {reason}" for reason, n in found.unpaired.most_common())
        st.warning(f"{line}; {unpaired} do not: {why}.", icon=":material/link_off:")
    if cautions := found.cautions():
        st.warning(f"The two runs have other settings too: {'; '.join(cautions)}.", icon=":material/tune:")


def _gap(found: Pairing, gap: Comparison, names: tuple[str, str], kind: Kind) -> None:
    (noise, where), draws = found.noise(), found.draws()
    said = f"{names[1]} minus {names[0]}: {words.points(gap.effect)}"
    st.markdown(f"#### {said}, {gap.tasks} paired tasks, one-sided {words.p_value(gap.p_better)}")
    left, right = st.columns([3, 2])
    with left:
        frame.draw(compare_charts.gap(gap.effect, noise, names), key="cmp_gap", alt=said)
        floor = f"Grey band: {where}, {words.points(noise)}. A gap inside it can be chance alone."
        lacking = f"{where[:1].upper()}{where[1:]}."
        st.caption(f"{lacking if noise.point is None else floor} Interval: {gap.effect.method}.")
    ahead = sum(draw > 0 for draw in draws)
    with right:
        odds = f"{names[1]} ahead in {ahead} of {len(draws)} draws"
        if draws:
            frame.draw(compare_charts.odds(draws, names), key="cmp_odds", alt=odds)
        st.caption(f"{odds}: each dot is an equally likely value of the gap (bootstrap over tasks).")
    rule = found.b.records.config.race
    lower = "unknown" if gap.lower is None else f"{100 * gap.lower:+.1f} pp"
    aa, ab = found.flips()
    saving = words.percent(gap.saving) if gap.saving.point is None else percent(gap.saving)
    st.markdown(
        f"- **rule** the looks of a race err with {rule.screen_alpha:g} between them: it passes when p is small, or "
        f"when B saves tokens and a loss of {100 * rule.margin:g} pp is ruled out. Here B's lower bound at level "
        f"{rule.alpha:g} is {lower}. A verdict also needs fresh attempts on select.\n"
        f"- **attempts that flip** {words.counted(ab, words.percent)} between A and B, "
        f"{words.counted(aa, words.percent)} between A and itself (tasks count alike)\n"
        f"- **tokens saved by B** where both solve: {saving}\n"
        f"- **measured on** {kind[0]} ({kind[1]}), played by {kind[2]}, {gap.attempts} paired attempts"
        + ("" if gap.covered else "\n- **too few are scored in both to conclude anything**")
    )


def _difference(a: Picked, b: Picked) -> None:
    st.subheader("What differs", anchor=False)
    found = difference(a[0].run.harness(a[1]), b[0].run.harness(b[1]))
    if isinstance(found, str):
        st.caption(f"No difference can be shown: {found}.")
        return
    if not found.changes:
        st.caption("Nothing: the two trees are the same.")
    for part, changes in pairing.by_part(found).items():
        if changes:
            st.markdown(f"**{PARTS[part]}**")
            st.code("\n".join(changes), language=None, wrap_lines=True)
    unchanged = [PARTS[part] for part, changes in pairing.by_part(found).items() if not changes]
    if unchanged:
        st.caption(f"Unchanged: {', '.join(unchanged)}.")
    if found.patch:
        with st.expander("patch from A to B"):
            frame.long_text(found.patch, "a-to-b.patch", language="diff")


def _forest(found: Pairing, gap: Comparison) -> None:
    st.subheader("The gap in each app", anchor=False)
    apps = found.by_app()
    said = "; ".join(f"{app} {words.points(made.effect)}, n = {made.effect.n}" for app, made in apps.items())
    frame.draw(compare_charts.forest(apps, gap), key="cmp_apps", alt=f"Gap per app: {said}")
    st.caption("Bars are 95 % intervals over tasks; a task over two apps counts in both. Diamond: all tasks together.")
    frame.csv_button("apps", lambda: [{"app": app, **frame.ends(made.effect)} for app, made in apps.items()])


def _concordance(found: Pairing, a: Picked, b: Picked, kind: Kind) -> None:
    st.subheader("Which attempts do both solve?", anchor=False)
    counts = found.concordance()
    total = sum(counts.values())
    address = {
        "base": a[0].harness_labels[a[1]],
        "cand": b[0].harness_labels[b[1]],
        "base_run": a[0].run.path.name,
        "cand_run": b[0].run.path.name,
        "on": "/".join(kind),
    }
    links = {name: frame.link_in(b[0].run, "rollouts", {"pairs": name, **address}) for name in pairing.CELLS}

    def cell(name: str) -> str:
        return f"[**{counts[name]}** {pairing.CELLS[name]}]({links[name]})"

    st.markdown(
        "| | B solves it | B fails |\n|---|---|---|\n"
        f"| **A solves it** | {cell('both')} | {cell('only_a')} |\n"
        f"| **A fails** | {cell('only_b')} | {cell('neither')} |"
    )
    st.caption(
        f"{total} paired attempts that both have scored. Each cell opens its rollouts, B's with A's beside them. "
        f"Do not judge by two separate intervals: the gap above is of the pairs."
    )


if __name__ == "__main__":
    page()
