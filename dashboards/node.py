"""The page of one node of the lineage: what it is, why it was made, what was foretold and what came, what it cost."""

from __future__ import annotations

import streamlit as st

from dashboards import frame, theme, words
from dashboards.views import Story
from evolver.evidence.verdicts import brier
from evolver.figures.tree import Node
from evolver.phrasing import UNKNOWN, count, dollars
from evolver.population import standing
from evolver.records import Candidate, Decision, GuardResult, Manifest
from evolver.report import effect_of
from evolver.safety import OUTCOMES

GUARDS = {"held": "● held", "tripped": "✕ stopped it", "flagged": "◆ flagged"}


def mark_of(story: Story, candidate: Candidate) -> theme.Mark:
    return theme.VERDICTS[standing(candidate, story.population.decision_of.get(candidate.id))]


def card(story: Story, candidate: Candidate) -> None:
    decision = story.population.decision_of.get(candidate.id)
    mark = mark_of(story, candidate)
    with st.container(border=True):
        st.subheader(f"{mark.glyph} {candidate.name}", anchor=False)
        for tag in story.tags(candidate.harness_id):
            st.badge(tag, icon=":material/flag:", color="green")
        parents = ", ".join(f"{story.name(p)} ({words.short(p)})" for p in candidate.parents) or "none (start)"
        st.caption(f"{mark.word} · harness {candidate.harness_id[:12]} · by {candidate.author} · parent: {parents}")
        if candidate.hidden_neutral:
            st.info("An edit that can't matter, judged to count false accepts. It never enters the lineage.")
        st.write(candidate.manifest.why or "No reason was given.")
        lines = [_success(story, candidate), *_decision(story, decision), *_cost(story, candidate)]
        st.markdown("\n".join(f"- {line}" for line in lines))
        _links(story, candidate, decision)
        _guards(decision)
        _manifest(candidate.manifest)
        _predictions(story, candidate)
        _diff(story, candidate)


def _success(story: Story, candidate: Candidate) -> str:
    made = story.evaluation(candidate.harness_id)
    if made is None:
        return f"**success** {UNKNOWN}: not evaluated yet"
    said = f"{made.n_tasks} tasks ({made.purpose}), {made.n_unscored} unscored"
    return f"**success** {words.percent(made.success)}, {said}"


def _decision(story: Story, decision: Decision | None) -> list[str]:
    if decision is None:
        return []
    effect, where = effect_of(decision)
    against = story.name(decision.incumbent_harness)
    lines = [f"**effect** {words.points(effect)} against {against} ({where}, {effect.n if effect else 0} paired tasks)"]
    if decision.cumulative is not None:
        lines.append(f"**against the root** {words.points(decision.cumulative)}, n = {decision.cumulative.n}")
    noise, moved = (words.counted(rate, words.percent) for rate in (decision.flip_rate_aa, decision.flip_rate_ab))
    lines.append(f"**tasks that flip** {moved} between the two, {noise} between the incumbent and itself")
    ours, before = decision.tokens_per_solved, words.tokens(decision.incumbent_tokens_per_solved)
    lines.append(f"**tokens per solved task** {words.counted(ours, words.tokens)} (incumbent {before})")
    if decision.teacher:
        lines.append(f"**played by** {decision.teacher}")
    return [*lines, *(f"**reason** {reason}" for reason in decision.reasons)]


def _cost(story: Story, candidate: Candidate) -> list[str]:
    played = story.attempts_before()[candidate.id]
    known = f"{played.tokens:,} tokens" if not played.unknown else f"at least {played.tokens:,} tokens"
    rest = f" ({played.unknown} attempts of unknown size)" if played.unknown else ""
    own = f"**author's own** {count(candidate.author_tokens)} tokens, {dollars(candidate.author_cost_usd)}"
    return [f"**its attempts before the verdict** {played.rollouts:,} rollouts, {known}{rest}", own]


def _links(story: Story, candidate: Candidate, decision: Decision | None) -> None:
    against = decision.incumbent_harness if decision else next(iter(candidate.parents), None)
    if against is not None:
        label = story.harness_labels
        base = story.parent_harness(against)
        address = frame.link("compare", {"base": label.get(base, base), "cand": label[candidate.harness_id]})
        links = [f"[Compare with {story.name(base)}]({address})"]
        links.append(f"[Propose an edit]({frame.link('propose', {'from': label[candidate.harness_id]})})")
        if decision is not None and decision.verdict == "promote":
            links.append(f"[Freeze]({frame.link('freeze', {'h_freeze': label[candidate.harness_id]})})")
        st.markdown(" · ".join(links))


def _guards(decision: Decision | None) -> None:
    if decision is None or not decision.guards:
        return
    st.markdown("**guards** (what no gain makes up for)")
    rows = [
        {
            "guard": " ".join(filter(None, (result.guard, result.subject))),
            "outcome": GUARDS.get(result.outcome, f"○ {OUTCOMES.get(result.outcome, result.outcome)}"),
            "measured": _measured(result),
            "why": result.reason,
        }
        for result in decision.guards
    ]
    st.dataframe(rows, hide_index=True)


def _measured(result: GuardResult) -> str:
    interval = result.interval
    limit = f"limit {100 * result.limit:.1f} %, n = {interval.n}"
    if interval.point is None:
        return f"{UNKNOWN} ({interval.method})"
    if interval.low is None or interval.high is None:
        return f"{100 * interval.point:+.1f} %, {limit}"
    return f"{100 * interval.point:+.1f} % [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}], {limit}"


def _manifest(said: Manifest) -> None:
    lines = [f"- {edit}" for edit in said.edits]
    if said.expected_token_change is not None:
        lines.append(f"- expects {100 * said.expected_token_change:+.0f} % tokens a task")
    for app, change in said.expected_channel_change.items():
        lines.append(f"- expects {100 * change:+.0f} pp of {app}'s calls through the terminal")
    if lines:
        st.markdown("\n".join(("**the author's edits and expectations**\n", *lines)))


def _predictions(story: Story, candidate: Candidate) -> None:
    said = candidate.manifest
    claims = [*said.predicted_flips, *said.predicted_regressions]
    if not claims:
        return
    found = story.predictions(candidate)
    score = brier(found)
    came = sum(one.came for one in found)
    tail = "" if score is None else f"; Brier {score:.2f} (0 is perfect, 0.25 is what always saying 50 % earns)"
    st.markdown(f"**foretold and observed on dev**: {came} of {len(found)} came, {len(claims)} were foretold{tail}")
    seen = {(one.what, one.task): one for one in found}
    rows = []
    for what, flips in (("flip", said.predicted_flips), ("regression", said.predicted_regressions)):
        for flip in flips:
            one = seen.get((what, flip.task_id))
            observed = "○ not measured in both" if one is None else "● came" if one.came else "✕ did not come"
            rows.append(
                {"task": flip.task_id, "foretold": what, "chance": words.share(flip.probability), "observed": observed}
            )
    st.dataframe(rows, hide_index=True)


def _diff(story: Story, candidate: Candidate) -> None:
    if not candidate.parents:
        return
    parts = ", ".join(candidate.components) or "none"
    st.markdown(f"**changed components** {parts} (F scaffold, T tools, P prompt, E environment)")
    if candidate.changes:
        st.code("\n".join(candidate.changes), language=None)
    with st.expander("patch against the parent"):
        found = story.run.difference(story.parent_harness(candidate.parents[0]), candidate.harness_id)
        if isinstance(found, str):
            st.caption(f"No patch: {found}.")
        else:
            frame.long_text(found.patch or "no file differs", "patch", language="diff")


def said_of(nodes: list[Node]) -> str:
    """How many of each kind stand in the tree."""
    counts = {v: sum(n.verdict == v for n in nodes) for v in theme.VERDICTS if v != "folded"}
    hidden = sum(int(n.name) for n in nodes if n.verdict == "folded")
    parts = [f"{n} {theme.VERDICTS[v].word}" for v, n in counts.items() if n]
    return ", ".join([*parts, *([f"{hidden} closed ones folded into ▽"] if hidden else [])])
