"""How did we get here, what was tried and refused?"""

from __future__ import annotations

import math

import streamlit as st

from dashboards import frame, node, words
from dashboards.views import Story
from evolver.figures import lineage
from evolver.phrasing import UNKNOWN, count, dollars
from evolver.records import Candidate, FailedProposal
from evolver.report import effect_of
from evolver.safety import stages_table

ROWS = 100
ANY = "any"


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
        node.card(story, chosen)
    with left:
        said = node.said_of(nodes)
        frame.draw(
            lineage.tree(nodes, chosen.id, story.flags()),
            key="tree",
            on_select=_take_click,
            points_only=True,
            alt=f"Lineage: {said}",
        )
        st.caption(
            f"{len(story.population.candidates)} harnesses: {said}. The thick line is the path of the incumbent. "
            "A flag marks a stage, a capsule or another tag. Click a mark to open it, point at it to see its name."
        )
    _table(story)
    frame.words_table(stages_table(story.run, story.names))
    _refused(story)


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


def _table(story: Story) -> None:
    st.subheader("The same as a table", anchor=False)
    candidates = _filtered(story)
    pages = max(1, math.ceil(len(candidates) / ROWS))
    number = 1
    if pages > 1:
        number = min(pages, int(st.number_input("page", min_value=1, step=1, key="l_page", bind="query-params") or 1))
    shown = candidates[ROWS * (number - 1) : ROWS * number]
    first = ROWS * (number - 1) + 1 if shown else 0
    total = len(story.population.candidates)
    st.caption(
        f"{first} to {first + len(shown) - bool(shown)} of {len(candidates)} that fit, of {total} candidates, "
        "in the order of proposing"
    )
    played = story.attempts_before()
    rows = []
    for candidate in shown:
        decision = story.population.decision_of.get(candidate.id)
        effect = effect_of(decision)[0] if decision else None
        spent = played[candidate.id]
        rows.append(
            {
                "candidate": frame.link("lineage", {"h": story.candidate_labels[candidate.id]}),
                "verdict": node.mark_of(story, candidate).label,
                "parent": ", ".join(story.name(p) for p in candidate.parents) or "none (start)",
                "changed": " ".join(candidate.components) or "none",
                "effect": words.points(effect) if decision else "not decided",
                "tokens per solved": words.tokens(decision.tokens_per_solved) if decision else UNKNOWN,
                "rollouts": spent.rollouts,
                "tokens": f"{'at least ' * bool(spent.unknown)}{spent.tokens:,}",
                "author": candidate.author,
                "stage, tags": " · ".join(story.tags(candidate.harness_id)) or "no",
                "proposed": words.moment(candidate.proposed_at, frame.zone()),
            }
        )
    st.dataframe(rows, hide_index=True, column_config={"candidate": frame.link_column("candidate", "h")})


def _filtered(story: Story) -> list[Candidate]:
    """The candidates that the reader's three filters leave."""
    found = list(story.population.candidates)

    def verdict(candidate: Candidate) -> list[str]:
        return [node.mark_of(story, candidate).word]

    kinds = (
        ("verdict", verdict),
        ("author", lambda candidate: [candidate.author]),
        ("changed part", lambda candidate: list(candidate.components)),
    )
    for place, (label, of) in zip(st.columns(3), kinds, strict=True):
        options = sorted({value for candidate in story.population.candidates for value in of(candidate)})
        with place:
            wanted = st.selectbox(label, [ANY, *options], key=f"l_{label.split()[0]}", bind="query-params")
        found = [c for c in found if wanted == ANY or wanted in of(c)]
    return found


def _refused(story: Story) -> None:
    failed = story.run.all(FailedProposal)
    if not failed:
        return
    st.subheader(f"{len(failed)} proposals that became no candidate", anchor=False)
    shown = failed[: -ROWS - 1 : -1]
    if len(shown) < len(failed):
        st.caption(f"The newest {len(shown)} of {len(failed)}.")
    rows = [
        {
            "author": one.author,
            "parent": story.name(one.parent),
            "why it was proposed": one.why or "no reason given",
            "refused because": "; ".join(one.reasons),
            "changes": "; ".join(one.changes) or "none that could be read",
            "author's tokens": count(one.author_tokens),
            "author's cost": dollars(one.author_cost_usd),
            "when": words.moment(one.failed_at, frame.zone()),
        }
        for one in shown
    ]
    st.dataframe(rows, hide_index=True)


if __name__ == "__main__":
    page()
