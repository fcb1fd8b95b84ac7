"""Colours, shapes, words, the tree's places and the marks on a frame."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path

import pytest
from PIL import Image as Picture

import dashboards
from dashboards import theme, words
from dashboards.frames import click_points, with_rings
from dashboards.queries import open_run
from dashboards.views import Story
from evolver.figures.channels import channel_dots
from evolver.figures.lineage import incumbent_path
from evolver.figures.tree import layout
from evolver.intervals import nothing, wilson
from evolver.population import Population
from evolver.records import Candidate, Interval, Manifest, ToolCall

FOLDER = Path(dashboards.__file__).parent
HUES = (theme.BLUE, theme.VERMILLION, theme.GREEN, theme.PURPLE, theme.GREY)


def rgb(colour: str) -> tuple[float, float, float]:
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return r, g, b


def linear(colour: str) -> tuple[float, float, float]:
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb(colour))
    return r, g, b


def contrast(a: str, b: str) -> float:
    bright = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b_ for r, g, b_ in (linear(a), linear(b))), reverse=True)
    return (bright[0] + 0.05) / (bright[1] + 0.05)


@pytest.mark.parametrize(("hue", "ground"), [*itertools.product(HUES, (theme.LIGHT_PAGE, theme.DARK_PAGE))])
def test_u37_every_mark_stands_out_on_both_grounds(hue: str, ground: str) -> None:
    assert contrast(hue, ground) >= 3


@pytest.mark.parametrize(
    ("text", "ground"),
    [(theme.LIGHT_TEXT, theme.LIGHT_PAGE), (theme.DARK_TEXT, theme.DARK_PAGE), (theme.DARK_ACCENT, theme.DARK_PAGE)],
)
def test_u37_the_words_of_a_chart_can_be_read_on_their_ground(text: str, ground: str) -> None:
    assert contrast(text, ground) >= 4.5


def test_u37_no_colour_is_written_outside_the_theme() -> None:
    others = [p for p in FOLDER.rglob("*.py") if p.name != "theme.py"]
    assert others and not [p for p in others if re.search(r"[\"']#[0-9a-fA-F]{3,8}[\"']|rgba?\(", p.read_text())]


@pytest.mark.parametrize(
    "marks", [theme.VERDICTS, theme.CHANNELS, theme.OUTCOMES], ids=["verdict", "channel", "outcome"]
)
def test_u35_shape_and_word_alone_tell_meanings_apart(marks: dict[str, theme.Mark]) -> None:
    for what in ("symbol", "glyph", "word"):
        values = [getattr(mark, what) for mark in marks.values()]
        assert len(set(values)) == len(values)


def deficient(colour: str, kind: str) -> tuple[float, ...]:
    """What a dichromat sees, in linear light (Machado, Oliveira and Fernandes 2009, severity 1)."""
    matrices = {
        "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
        "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    }
    return tuple(sum(m * v for m, v in zip(row, linear(colour), strict=True)) for row in matrices[kind])


@pytest.mark.parametrize("kind", ["protan", "deutan"])
def test_u35_verdicts_stay_apart_without_red_or_green(kind: str) -> None:
    colours = {theme.VERDICTS[v].colour for v in ("promote", "reject", "inconclusive", "keep")}
    for a, b in itertools.combinations(colours, 2):
        apart = sum((x - y) ** 2 for x, y in zip(deficient(a, kind), deficient(b, kind), strict=True)) ** 0.5
        assert apart > 0.1, f"{a} and {b} look alike to a {kind}ope"


def test_u36_a_harness_keeps_its_colour_and_the_fifth_is_grey() -> None:
    known = [f"h{n}" for n in range(6)]
    looks = [theme.harness_mark(h, known) for h in known]
    assert len({look.colour for look in looks[:4]}) == 4 and {look.colour for look in looks[4:]} == {theme.GREY}
    assert theme.harness_mark("h1", [*known, "later"]) == looks[1]


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (20, 20), (1, 1), (7, 20)])
def test_u26_an_interval_of_a_share_stays_inside_0_and_1(hits: int, n: int) -> None:
    made = wilson(hits, n, "calls")
    assert made.low is not None and made.high is not None and made.point is not None and made.n == n
    assert 0 <= made.low <= made.point <= made.high <= 1 and made.low < made.high
    assert wilson(0, 0, "calls").point is None


def test_what_is_unknown_says_so_and_why() -> None:
    assert words.percent(None) == words.seconds(None) == words.moment(None, None) == "unknown"
    assert words.percent(nothing("no task was scored")) == "unknown (no task was scored)"
    alone = Interval(point=0.5, low=None, high=None, n=1, method="one task: no interval")
    assert words.points(alone) == "+50.0 pp [no interval] (one task: no interval)"
    assert words.counted(wilson(7, 20, "tasks"), words.percent) == "35.0 % [18.1, 56.7], n = 20"
    assert words.counted(None, words.percent) == "unknown"
    cheap, dear = (Interval(point=p, low=p / 2, high=2 * p, n=9, method="m") for p in (0.0125, 3.0))
    assert words.usd(cheap) == "$0.0125 [$0.0063, $0.0250]" and words.usd(dear) == "$3.00 [$1.50, $6.00]"


def test_u38_a_moment_names_its_zone() -> None:
    assert words.moment(1_780_000_000, "Europe/Berlin") == "2026-05-28 22:26:40 CEST"
    assert words.moment(1_780_000_000, None) == "2026-05-28 20:26:40 UTC"
    assert [words.ago(s) for s in (-1, 12, 119, 120, 7_300, 200_000)] == [
        "0 s ago", "12 s ago", "119 s ago", "2 min ago", "2 h ago", "2 days ago"
    ]  # fmt: skip


def candidate(name: str, *parents: str) -> Candidate:
    return Candidate(
        id=f"c-{name}",
        name=name,
        harness_id=f"h-{name}",
        parents=tuple(f"h-{p}" for p in parents),
        author="human",
        components=(),
        changes=(),
        manifest=Manifest(why=""),
        proposed_at=0.0,
    )


def test_u34_rejected_harnesses_stay_and_every_one_but_the_start_has_a_parent(whole_run: Path) -> None:
    nodes = Story(open_run(whole_run)).nodes()
    assert {n.name: n.verdict for n in nodes} == {
        "alpha": "start", "beta1": "promote", "beta2": "keep",
        "wide": "inconclusive", "short": "reject", "open": "undecided",
    }  # fmt: skip
    known = {n.id for n in nodes}
    assert all(n.parents and set(n.parents) <= known for n in nodes if n.verdict != "start")
    assert [n.name for n in nodes if n.on_path] == ["alpha", "beta1"]
    assert len({(n.x, n.y) for n in nodes}) == len(nodes)


def test_u34_a_parent_from_elsewhere_is_drawn_as_missing() -> None:
    nodes = layout(Population([candidate("a", "gone"), candidate("b", "a")], []), set())
    assert [(n.id, n.verdict, n.x) for n in nodes] == [
        ("missing:h-gone", "missing", 0),
        ("c-a", "undecided", 1),
        ("c-b", "undecided", 2),
    ]


def test_a_harness_that_is_its_own_ancestor_does_not_hang_the_tree() -> None:
    nodes = layout(Population([candidate("a", "b"), candidate("b", "a"), candidate("c", "c")], []), set())
    assert {n.name for n in nodes} == {"a", "b", "c"}


def test_u24_a_point_without_a_value_is_never_drawn(whole_run: Path) -> None:
    points = Story(open_run(whole_run)).path()
    lost = points[1].__class__("c-x", "lost", "reject", 10, nothing("not measured"))
    figure = incumbent_path([*points, lost], {p.candidate for p in points})
    assert "lost" not in [text for trace in figure.data for text in trace.text or ()]
    shares = {"calc": {"a": wilson(3, 9, "calls"), "b": wilson(0, 0, "calls")}}
    dots = channel_dots(shares, {h: theme.harness_mark(h, ["a", "b"]) for h in "ab"}, str)
    drawn = [(trace.mode, len(trace.x)) for trace in dots.data]
    assert drawn == [("markers+text", 1), ("text", 0), ("markers+text", 0), ("text", 1)]


@pytest.mark.parametrize("size", [(1920, 1080), (1280, 720), (640, 480)])
@pytest.mark.parametrize("point", [(0, 0), (999, 999), (500, 500)])
def test_u40_a_mark_lies_on_the_pixel_that_was_meant(size: tuple[int, int], point: tuple[int, int]) -> None:
    call = ToolCall(id="c", name="computer_use", arguments={"action": "left_click", "coordinate": list(point)})
    expected = tuple(round(p * (s - 1) / 999) for p, s in zip(point, size, strict=True))
    assert click_points([call], size) == [expected]
    data = io.BytesIO()
    Picture.new("RGB", size, "black").save(data, "PNG")
    drawn = with_rings(data.getvalue(), [call])
    assert drawn is not None and drawn.size == size
    assert "#{:02X}{:02X}{:02X}".format(*drawn.getpixel(expected)) == theme.VERMILLION  # the middle of the cross


def test_u39_bytes_that_are_no_image_give_no_picture() -> None:
    assert with_rings(b"not a png", []) is None
    bad = ToolCall(id="c", name="computer_use", arguments={"action": "left_click", "coordinate": ["12", None]})
    assert click_points([bad], (1920, 1080)) == []


def test_the_sentence_names_the_leader_with_its_interval(whole_run: Path) -> None:
    lead = "**beta1** leads **alpha** by +56.2 pp [+31.0, +77.0], 16 paired tasks (select, 95 % interval)."
    assert Story(open_run(whole_run)).sentence() == lead


def test_the_sentence_says_by_which_route_the_leader_was_promoted(run_copy: Path) -> None:
    """A win may be shown by the exact test where the interval holds 0; and a cheaper one may solve more."""
    log = run_copy / "decisions.jsonl"
    log.write_text(log.read_text().replace('"routes":["better"]', '"routes":["cheaper"]'))
    said = Story(open_run(run_copy)).sentence()
    assert said.startswith("**beta1** took the place of **alpha**, being cheaper and not worse: +56.2 pp")


def test_the_sentence_says_that_nothing_was_promoted(run_copy: Path) -> None:
    decisions = run_copy / "decisions.jsonl"
    decisions.write_text("".join(line for line in decisions.open() if '"promote"' not in line))
    said = "**alpha**, the starting harness, is still the incumbent: 3 candidates decided, none promoted."
    assert Story(open_run(run_copy)).sentence() == said
