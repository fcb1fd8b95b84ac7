"""How did we get here, what was tried and refused?"""

from __future__ import annotations

import streamlit as st

from dashboards import charts, frame, theme, words
from dashboards.views import Story, verdict_of
from evolver.phrasing import UNKNOWN, count, dollars
from evolver.records import Candidate, Decision
from evolver.report import effect_of


def page() -> None:
    story = frame.story()
    st.header("How did we get here, what was tried and refused?", anchor=False)
    nodes = story.nodes()
    if not nodes:
        st.info("No candidate has been proposed in this run yet.")
        return
    left, right = st.columns([3, 2])
    with right:
        chosen = _chosen(story)
        _card(story, chosen)
    with left:
        counts = {v: sum(n.verdict == v for n in nodes) for v in theme.VERDICTS}
        said = ", ".join(f"{n} {v}" for v, n in counts.items() if n)
        st.plotly_chart(
            charts.tree(nodes, chosen.id),
            key="tree",
            on_select=_take_click,
            selection_mode="points",
            alt=f"Lineage: {said}",
            config={"displayModeBar": False},
        )
        st.caption(
            f"{len(nodes)} harnesses: {said}. The thick line is the path of the incumbent. Click a mark to open it."
        )
    _table(story)


def _chosen(story: Story) -> Candidate:
    """The candidate that the address or the reader names; else the incumbent."""
    by_label = {story.candidate_labels[c.id]: c for c in story.population.candidates}
    asked = st.query_params.get("h")
    if asked is not None and asked not in by_label:
        st.warning(f"No candidate `{asked[:80]}` in this run; the incumbent is shown.")
    options = list(by_label)
    leader = next((label for label, c in by_label.items() if c.harness_id == story.incumbent), options[0])
    chosen = st.selectbox("candidate", options, index=options.index(leader), key="h", bind="query-params")
    return by_label.get(str(chosen), by_label[leader])


def _take_click() -> None:
    points = st.session_state["tree"]["selection"]["points"]
    clicked = next((p["customdata"] for p in points if "customdata" in p), None)
    clicked = clicked[0] if isinstance(clicked, list) and clicked else clicked
    labels = frame.story().candidate_labels
    if clicked in labels:
        st.session_state["h"] = labels[clicked]


def _mark(story: Story, candidate: Candidate) -> theme.Mark:
    return theme.VERDICTS[verdict_of(candidate, story.population.decision_of)]


def _card(story: Story, candidate: Candidate) -> None:
    decision = story.population.decision_of.get(candidate.id)
    mark = _mark(story, candidate)
    made = story.evaluation(candidate.harness_id)
    with st.container(border=True):
        st.subheader(f"{mark.glyph} {candidate.name}", anchor=False)
        parents = ", ".join(f"{story.name(p)} ({words.short(p)})" for p in candidate.parents) or "none (start)"
        st.caption(f"{mark.word} · harness {candidate.harness_id[:12]} · by {candidate.author} · parent: {parents}")
        st.write(candidate.manifest.why or "No reason was given.")
        success = (
            f"{words.percent(made.success)}, {made.n_tasks} tasks ({made.purpose}), {made.n_unscored} unscored"
            if made
            else UNKNOWN
        )
        lines = [f"**success** {success}", *_decision_lines(story, decision), *_prediction_lines(candidate)]
        lines.append(f"**author's own tokens** {count(candidate.author_tokens)}")
        lines.append(f"**author's own cost** {dollars(candidate.author_cost_usd)}")
        st.markdown("\n".join(f"- {line}" for line in lines))
        _diff(story, candidate)


def _decision_lines(story: Story, decision: Decision | None) -> list[str]:
    if decision is None:
        return []
    effect, where = effect_of(decision)
    against = story.name(decision.incumbent_harness)
    lines = [f"**effect** {words.points(effect)} against {against} ({where}, {effect.n if effect else 0} paired tasks)"]
    noise, moved = words.share(decision.flip_rate_aa), words.share(decision.flip_rate_ab)
    lines.append(f"**tasks that flip** {moved} between the two, {noise} between the incumbent and itself")
    before = count(decision.incumbent_tokens_per_solved)
    lines.append(f"**tokens per solved task** {count(decision.tokens_per_solved)} (incumbent {before})")
    return [*lines, *(f"**reason** {reason}" for reason in decision.reasons)]


def _prediction_lines(candidate: Candidate) -> list[str]:
    said = candidate.manifest
    if not said.predicted_flips and not said.predicted_regressions:
        return []
    return [
        f"**author predicted** {len(said.predicted_flips)} tasks to flip, {len(said.predicted_regressions)} to break"
    ]


def _diff(story: Story, candidate: Candidate) -> None:
    if not candidate.parents:
        return
    parts = ", ".join(candidate.components) or "none"
    st.markdown(f"**changed components** {parts} (F scaffold, T tools, P prompt, E environment)")
    if candidate.changes:
        st.code("\n".join(candidate.changes), language=None)
    with st.expander("patch against the parent"):
        parent = next(
            (c.harness_id for c in story.population.candidates if c.id == candidate.parents[0]), candidate.parents[0]
        )
        found = story.run.difference(parent, candidate.harness_id)
        if isinstance(found, str):
            st.caption(f"No patch: {found}.")
        else:
            st.code(found.patch or "no file differs", language="diff")


def _table(story: Story) -> None:
    st.subheader("The same as a table", anchor=False)
    rows = []
    for candidate in story.population.candidates:
        decision = story.population.decision_of.get(candidate.id)
        effect = effect_of(decision)[0] if decision else None
        rows.append(
            {
                "candidate": frame.link("lineage", h=story.candidate_labels[candidate.id]),
                "verdict": _mark(story, candidate).label,
                "parent": ", ".join(story.name(p) for p in candidate.parents) or "none (start)",
                "changed": " ".join(candidate.components) or "none",
                "effect": words.points(effect) if decision else "not decided",
                "tokens per solved": count(decision.tokens_per_solved) if decision else UNKNOWN,
                "author": candidate.author,
                "proposed": words.moment(candidate.proposed_at, frame.zone()),
            }
        )
    st.dataframe(rows, hide_index=True, column_config={"candidate": frame.link_column("candidate", "h")})


if __name__ == "__main__":
    page()
