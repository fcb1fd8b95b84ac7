"""What is the best harness now, and how sure are we?"""

from __future__ import annotations

import streamlit as st

from dashboards import frame, theme, words
from dashboards.views import Story
from evolver.baselines import baselines_table, final_table
from evolver.figures import lineage
from evolver.phrasing import UNKNOWN, count
from evolver.records import Final
from evolver.report import effect_of
from evolver.safety import guards_table, safety_lines

LAST_DECISIONS = 10
MOST_NAMED = 12


def page() -> None:
    story = frame.story()
    st.header(story.sentence(), anchor=False)
    if story.root is None:
        st.info("The run has written no decision so far; this page fills by itself as they come.")
    _cards(story)
    _path(story)
    _decisions(story)
    _honesty(story)


def _cards(story: Story) -> None:
    incumbent = story.incumbent
    made = story.evaluation(incumbent) if incumbent else None
    stage = f"on {made.split}, {made.n_tasks} tasks, {made.n_unscored} unscored" if made else "not evaluated yet"
    who = story.name(incumbent) if incumbent else UNKNOWN
    spent = story.run.spent()
    unknown = sum(s.unknown_tokens for s in spent)
    cap = story.run.config.caps.tokens
    share = story.terminal_share(incumbent) if incumbent else None
    first, second, third, fourth = st.columns(4)
    frame.card(first, f"success of {who}", words.percent(made.success if made else None), stage)
    frame.card(second, "tokens per task", words.tokens(made.tokens_per_task if made else None), stage)
    calls = (
        f"{share.n:,} calls; calls of one attempt are alike, so the true interval is wider"
        if share
        else "not evaluated yet"
    )
    frame.card(third, "calls through the terminal", words.percent(share), calls)
    known = count(sum(s.tokens for s in spent)) if spent else UNKNOWN
    entries = sum(s.entries for s in spent)
    rest = f"{unknown} of {entries} ledger entries of unknown size not in it · " if unknown else ""
    frame.card(fourth, "tokens spent", known, f"{rest}cap: {count(cap) if cap is not None else 'none'}")


def _path(story: Story) -> None:
    st.subheader("The incumbent, by tokens spent", anchor=False)
    points = story.path()
    unknown = [p.name for p in points if p.success.point is None]
    shown = [p for p in points if p.success.point is not None]
    if not shown:
        st.caption("No evaluation on dev yet.")
        return
    told = shown if len(shown) <= MOST_NAMED else [p for p in shown if p.verdict in ("start", "promote")][-MOST_NAMED:]
    said = "; ".join(f"{p.name} {words.percent(p.success)} ({p.verdict})" for p in told)
    rest = f"; {len(shown) - len(told)} more are small marks without name" if len(told) < len(shown) else ""
    frame.draw(
        lineage.incumbent_path(points, {p.candidate for p in told}),
        alt=f"Success on dev: {said}{rest}",
        key="incumbent",
    )
    tail = f" Not drawn, success unknown: {', '.join(unknown[:MOST_NAMED])}" if unknown else ""
    tail += f" and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
    st.caption(
        f"Success on dev in the order of judging, bars are 95 % intervals over tasks: {said}{rest}.{tail}".rstrip(".")
        + "."
    )
    frame.csv_button(
        "incumbent",
        lambda: [
            {"candidate": p.name, "verdict": p.verdict, "tokens": p.tokens, **frame.ends(p.success)} for p in points
        ],
    )


def _decisions(story: Story) -> None:
    decided = story.population.decisions
    if not decided:
        return
    st.subheader(f"Last {min(LAST_DECISIONS, len(decided))} of {len(decided)} decisions", anchor=False)
    rows, labels = [], story.candidate_labels
    for decision in reversed(decided[-LAST_DECISIONS:]):
        effect, where = effect_of(decision)
        rows.append(
            {
                "verdict": theme.VERDICTS[story.verdict(decision)].label,
                "candidate": frame.link("lineage", {"h": labels.get(decision.candidate_id, decision.candidate_id)}),
                "against": story.name(decision.incumbent_harness),
                "effect": words.points(effect),
                "measured on": f"{where}, {effect.n} tasks" if effect else where,
                "tokens per solved": words.tokens(decision.tokens_per_solved),
                "incumbent's": words.tokens(decision.incumbent_tokens_per_solved),
                "why": "; ".join(decision.reasons),
                "when": words.moment(decision.decided_at, frame.zone()),
            }
        )
    st.dataframe(rows, hide_index=True, column_config={"candidate": frame.link_column("candidate", "h")})


def _honesty(story: Story) -> None:
    """What the run says of itself: checks before it, false accepts, guards, baselines, the final comparison."""
    st.subheader("How far can this be trusted?", anchor=False)
    st.markdown("\n".join(f"- {line}" for line in safety_lines(story.run)))
    frame.words_table(guards_table(story.run, story.names))
    if story.run.all(Final):
        frame.words_table(baselines_table(story.run))
        frame.words_table(final_table(story.run, story.names))
    else:
        st.caption(final_table(story.run, story.names).caption)


if __name__ == "__main__":
    page()
