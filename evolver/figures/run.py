"""Every figure of a run with the sentence under it, for the report and for pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import plotly.graph_objects as go

from evolver.compare import Comparison
from evolver.figures.candidates import forest_figure
from evolver.figures.channels import channel_dots
from evolver.figures.compare import forest
from evolver.figures.frontier import chart, priced, staircase
from evolver.figures.gaps import gap_figure, seed_dots
from evolver.figures.lineage import incumbent_path, tree
from evolver.figures.paper import on_paper
from evolver.figures.tree import folded, layout
from evolver.gap_tables import gap_caption, newest_gaps
from evolver.marks import VERDICTS, harness_mark
from evolver.pairing import Pairing, Side
from evolver.phrasing import or_why, percent, pp, tokens
from evolver.population import cards_of, final_cards
from evolver.records import Rollout, Scorecard
from evolver.report import teacher_line
from evolver.store import Store
from evolver.story import Story, story_of

MOST_NAMED = 12
RACE = ("dev", "race")


@dataclass(frozen=True)
class Shown:
    """One figure: the name of its picture, and its caption."""

    name: str
    figure: go.Figure
    caption: str


def figures(store: Store) -> Iterator[Shown]:
    """The figures of a run that its records can fill, in the order of the report."""
    story = story_of(store)
    for gap in newest_gaps(store):
        variant = f"-equal-{gap.equal}" if gap.equal else ""
        name = f"gap-{story.name(gap.harness_a)}-{story.name(gap.harness_b)}{variant}"
        caption = f"Taught by {teacher_line(store)}. {gap_caption(gap)}"
        yield Shown(name, on_paper(gap_figure(gap, story.names, seed_dots(store, gap.equal))), caption)
    if story.population.decisions:
        smallest = store.config.race.min_effect
        caption = (
            "Candidates against their incumbents, paired by task, with 95 % intervals; shaded: leads below "
            f"{100 * smallest:g} pp, the smallest worth a promotion."
        )
        figure = on_paper(forest_figure(story.population.decisions, story.names, smallest))
        yield Shown("candidates", figure, caption)
    for made in (_lineage(story), _path(story), _compare(store, story), _frontier(story), _channels(story)):
        if made is not None:
            yield Shown(made.name, on_paper(made.figure), made.caption)


def _lineage(story: Story) -> Shown | None:
    nodes = folded(layout(story.population, set(story.population.lineage)))
    if not nodes:
        return None
    counts = {v: sum(n.verdict == v for n in nodes) for v in VERDICTS}
    said = ", ".join(f"{n} {VERDICTS[v].word}" for v, n in counts.items() if n)
    caption = f"Lineage: {said}. The thick line is the path of the incumbent; a flag marks a stage, a capsule or a tag."
    return Shown("lineage", tree(nodes, None, story.flags()), caption)


def _path(story: Story) -> Shown | None:
    points = [p for p in story.path() if p.success.point is not None]
    if not points:
        return None
    named = points if len(points) <= MOST_NAMED else [p for p in points if p.verdict in ("start", "promote")]
    caption = "Success on dev of the incumbent and of each decided candidate, by tokens spent; 95 % intervals."
    return Shown("path", incumbent_path(points, {p.candidate for p in named[-MOST_NAMED:]}), caption)


def _compare(store: Store, story: Story) -> Shown | None:
    """The incumbent against the start, app by app, on the dev tasks that both raced."""
    root, incumbent = story.root, story.incumbent
    if root is None or incumbent is None or root == incumbent:
        return None
    apps = {rollout.key.task_id: rollout.apps for rollout in store.all(Rollout)}
    cards = store.all(Scorecard)
    a, b = (
        Side(store, h, tuple(final_cards(cards_of(cards, h, "race", store.config.teacher_id))), apps)
        for h in (root, incumbent)
    )
    found = Pairing(a, b)
    if not isinstance(found.gap, Comparison):
        return None
    caption = (
        f"{story.name(incumbent)} against {story.name(root)} in each app, on dev: {or_why(found.gap.effect, pp)} over "
        f"{found.gap.tasks} paired tasks. Bars are 95 % intervals; a task over two apps counts in both."
    )
    return Shown("apps", forest(found.by_app(), found.gap), caption)


def _frontier(story: Story) -> Shown | None:
    shown = priced(story, RACE, "tokens")
    members = staircase(shown)
    if not members:
        return None
    said = "; ".join(
        f"{p.name} {or_why(p.success, percent)} at {or_why(p.cost_interval, tokens)}" for p in members[:MOST_NAMED]
    )
    lost = sum(not p.known for p in shown)
    caption = f"Success on dev over tokens per task. On the frontier: {said}. {lost} without a known cost or success."
    return Shown("frontier", chart(shown, "tokens", several=False), caption)


def _channels(story: Story) -> Shown | None:
    ends = [h for h in dict.fromkeys((story.root, story.incumbent)) if h is not None and story.channel_rows(h)]
    shares = story.terminal_shares(ends)
    if not shares:
        return None
    marks = {h: harness_mark(h, story.harness_ids) for h in ends}
    caption = (
        "The terminal's share of the calls in each app, sorted by how much it moved. Bars are 95 % Wilson intervals "
        "over calls; calls of one attempt are alike, so the true interval is wider."
    )
    return Shown("channels", channel_dots(shares, marks, story.name), caption)
