"""Imports MiniWoB++ (PyPI `miniwob`): each page of `html/miniwob/` with a seed becomes one task on a page in a browser.

A page and all that it loads become one file, which the task's witness shows (`miniwob_show.py`): a browser that the
agent may use, not touch. The page tells its own reward; nothing of the package is run outside of a browser.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from devset.importers.offer import (
    ImportFailed,
    Offer,
    Provenance,
    about,
    identifier,
    licence_near,
    made,
    own,
    text_of,
)
from devset.task import Criterion, OpenApp, Rubric, Task, TaskLimits

SOURCE = "miniwob"
ALL = "all.html"
SHOW = "show.py"
CHECK = "from devset.checks.miniwob import main\n\nmain()\n"
HERE = Path(__file__).parent
POLICY = (
    "<meta charset=utf-8>"
    "<meta http-equiv=Content-Security-Policy content=\"script-src 'nonce-@SECRET@' 'unsafe-eval'\">"
)
INSTRUCTION = """{asked}

The page that asks for this fills the screen. Do it there, with mouse and keyboard. There is no time limit, and the \
first answer counts.
"""
TIMING = "its reward is for acting at the right fraction of a second"
OVER = "what it shows once is over before the first screenshot"
REFUSED = {
    "button-delay": TIMING,
    "chase-circle": TIMING,
    "moving-items": TIMING,
    "stock-market": TIMING,
    "simon-says": OVER,
    "hover-shape": "it never gives a reward",
}
SERVED = "its frames need a web server"
# For these the reward says how near the answer is, and 1 takes luck; the package leaves the threshold to its user.
NEAR = 0.9
BY_DISTANCE = frozenset(
    {"bisect-angle", "circle-center", "find-midpoint", "right-angle", "use-colorwheel", "use-colorwheel-2"}
)
LINK = re.compile(r'<link\b[^>]*\bhref="([^"]+\.css)"[^>]*>')
SCRIPT = re.compile(r'<script\b(?:[^>]*\bsrc="([^"]+)")?[^>]*>(.*?)</script>', re.DOTALL)
IMAGE = re.compile(r"[\w./-]+\.(?:png|gif|jpe?g|svg)\b")
IMAGE_FOLDER = re.compile(r"""["'](\.\.?/[\w./-]+/)["']""")  # to which a script adds a name

Ask = Callable[[Mapping[str, bytes]], Mapping[str, Mapping[str, JsonValue]]]
"""Shows pages (name of a page → bytes of its file, with ALL and SHOW) and returns what each said."""


@dataclass(frozen=True)
class _Page:
    """One page of the package: its name, where it lies, and the one file that it becomes."""

    name: str
    path: Path
    html: str


def offers(path: Path, ask: Ask) -> Iterator[Offer]:
    """One offer per page of the package at `path` (a folder that holds it, the package, or its html/)."""
    root = _html(path)
    refused, pages = [], []
    for file in sorted((root / "miniwob").glob("*.html")):
        origin, task_id = f"miniwob/{file.name}", identifier(SOURCE, file.stem)
        if file.stem in REFUSED:
            refused.append(Offer(task_id, origin, reasons=(REFUSED[file.stem],)))
            continue
        try:
            with about(file):
                pages.append(_Page(file.stem, file, _one_file(file, root)))
        except ImportFailed as error:
            refused.append(Offer(task_id, origin, reasons=(f"malformed: {error}",)))
    for wrapper in sorted((root / "flight").glob("*/wrapper.html")):
        origin = f"flight/{wrapper.parent.name}/wrapper.html"
        refused.append(Offer(identifier(SOURCE, "flight", wrapper.parent.name), origin, reasons=(SERVED,)))
    yield from refused
    said = ask(_to_ask(pages)) if pages else {}
    for page in pages:
        yield _offer(page, said.get(page.name, {}), root)


def _html(path: Path) -> Path:
    for folder in (path, path / "html", path / "miniwob/html"):
        if (folder / "core/core.js").is_file() and (folder / "miniwob").is_dir():
            return folder
    raise ImportFailed(f"{path}: no core/core.js and miniwob/ in it, its html/ or miniwob/html/, expected MiniWoB++")


def _one_file(path: Path, root: Path) -> str:
    """The page as one file: styles, scripts and images are in it, every script bears the page's secret."""

    def style(found: re.Match[str]) -> str:
        file = own(path.parent / found[1], root)
        return f"<style>{_with_images(text_of(file), file.parent, root)}</style>"

    def script(found: re.Match[str]) -> str:
        code = text_of(own(path.parent / found[1], root)) if found[1] else found[2]
        if found[1] and found[1].endswith("core/core.js"):
            code += "\n" + text_of(HERE / "miniwob_page.js")
        safe = code.replace("</script", "<\\/script").replace("<!--", "<\\!--")
        return f'<script nonce="@SECRET@">{safe}</script>'

    text = text_of(own(path, root))
    if 'core/core.js"' not in text or "core.startEpisode(" not in text:
        raise ImportFailed(f"{path}: loads no core/core.js or starts no episode, expected a page of MiniWoB++")
    text = SCRIPT.sub(script, LINK.sub(style, text))
    images = {
        folder + file.name: _data_url(file)
        for folder in IMAGE_FOLDER.findall(text)
        for file in sorted((path.parent / folder).glob("*.png"))
    }
    text = _with_images(text, path.parent, root)
    fixed = {"IMAGES": json.dumps(images), "SEED": path.stem, "PAGE": path.stem, "TITLE": title(path.stem)}
    for name, value in fixed.items():
        text = text.replace(f"@{name}@", value)
    return text.replace("<head>", f"<head>{POLICY}", 1)


def title(name: str) -> str:
    """Of the window, once the page has begun."""
    return f"MiniWoB {name}"


def _with_images(text: str, folder: Path, root: Path) -> str:
    """The text with each name of an image that lies there replaced by the image itself."""

    def image(found: re.Match[str]) -> str:
        file = folder / found[0]
        return _data_url(own(file, root)) if file.is_file() else found[0]

    return IMAGE.sub(image, text)


def _data_url(file: Path) -> str:
    kind = mimetypes.guess_type(posixpath.basename(file))[0]
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _to_ask(pages: list[_Page]) -> Mapping[str, bytes]:
    """Files that, shown together, make every page begin once and say what it asks for."""
    files = {f"{page.name}.html": page.html.encode() for page in pages}
    names = json.dumps(sorted(files))
    every = f"""<!doctype html>{POLICY}<iframe width=480 height=360></iframe><script nonce="@SECRET@">
const names = {names}, frame = document.querySelector('iframe');
const next = () => names.length ? frame.src = names.shift() : console.log('@SECRET@ ' + JSON.stringify({{end: true}}));
frame.onload = () => setTimeout(next, 50);
next();
</script>"""
    return files | {ALL: every.encode(), SHOW: show()}


def by_page(lines: Sequence[Mapping[str, JsonValue]]) -> dict[str, dict[str, JsonValue]]:
    """What was said, by the page that said it; of what one said twice, the first."""
    found: dict[str, dict[str, JsonValue]] = {}
    for said in lines:
        if isinstance(page := said.get("page"), str):
            found[page] = {**said, **found.get(page, {})}
    return found


def show() -> bytes:
    """The program that shows a page."""
    return (HERE / "miniwob_show.py").read_bytes()


def _offer(page: _Page, said: Mapping[str, JsonValue], root: Path) -> Offer:
    task_id, origin = identifier(SOURCE, page.name), f"miniwob/{page.name}.html"
    asked, error = said.get("asked"), said.get("error")
    if error is not None:
        return Offer(task_id, origin, reasons=(f"its page fails: {error}",))
    if not isinstance(asked, str) or not asked:
        return Offer(task_id, origin, reasons=("its page asks for nothing",))
    near = page.name in BY_DISTANCE
    version, licence = _package(root)
    source = Provenance(
        f"MiniWoB++ (PyPI miniwob {version}), {origin}",
        licence,
        {origin: page.path.read_bytes()},
        (
            "the page and what it loads are one file, three times as large on the screen",
            "one episode, from a fixed seed, without time limit and without its display of rewards",
            *((f"a reward of {NEAR} is success",) if near else ()),
        ),
    )
    task = Task(
        id=task_id,
        hash="",
        family=SOURCE,
        instruction=INSTRUCTION.format(asked=asked),
        category="daily",
        apps=("chromium",),
        channels=frozenset({"gui"}),
        rubric=Rubric(
            criteria=(Criterion(id="reward", description="the page's reward for its first episode is full"),)
        ),
        limits=TaskLimits(),
        witness=OpenApp(command=f"exec python3 {SHOW} page.html", window=title(page.name)),
        witness_files={"page.html": page.html.encode(), SHOW: show()},
        gt_files={"expected.json": json.dumps({"asked": asked, "full": NEAR if near else 1.0}).encode()},
        check=CHECK,
        source=source.text(),
    )
    return Offer(task_id, origin, made(task))


def _package(root: Path) -> tuple[str, str]:
    """(version, licence) as the package's metadata beside it states, else what a LICENSE file does."""
    for metadata in root.parents[1].glob("miniwob-*.dist-info/METADATA"):
        stated = dict(re.findall(r"^(Version|License(?:-Expression)?): (.+)$", text_of(metadata), re.MULTILINE))
        licence = stated.get("License-Expression") or stated.get("License") or licence_near(root)
        return stated.get("Version", "of unknown version"), licence
    return "of unknown version", licence_near(root)
