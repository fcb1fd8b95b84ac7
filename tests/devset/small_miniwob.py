"""A package in MiniWoB++'s format, written here: a core.js with the same names, and a few pages."""

from __future__ import annotations

import base64
from pathlib import Path

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CORE = """
var core = {EP_TIMER: null, cover_div: null, EPISODE_MAX_TIME: 10000};
var WOB_EPISODE_ID = 0, WOB_RAW_REWARD_GLOBAL = 0, WOB_DONE_GLOBAL = false;
(function () {  // a small generator under the name of the one that the package uses
  let state = 1;
  Math.seedrandom = (seed) => {
    state = 7;
    for (const letter of String(seed)) state = state * 31 + letter.charCodeAt(0) & 0xffff;
  };
  Math.random = () => { state = state * 1103515245 + 12345 & 0x7fffffff; return state / 0x7fffffff; };
})();
core.randi = (low, high) => Math.floor(Math.random() * (high - low) + low);
core.createDisplay = function () {};
core.startEpisode = function () { document.body.innerHTML = 'START'; };
core.startEpisodeReal = function () {
  genProblem();
  core.cover_div.style.display = 'none';
  core.EP_TIMER = setTimeout(() => core.endEpisode(-1), core.EPISODE_MAX_TIME);
};
core.endEpisode = function (reward) {
  if (core.EP_TIMER === null) return;
  clearTimeout(core.EP_TIMER);
  core.EP_TIMER = null;
  WOB_RAW_REWARD_GLOBAL = reward;
  WOB_EPISODE_ID++;
  core.startEpisode();
};
core.getUtterance = () => document.getElementById('query').textContent.trim();
"""
HEAD = """<!doctype html><html><head><title>A Task</title>
<link rel="stylesheet" type="text/css" href="../core/core.css">
<script src="../core/core.js"></script>
"""
CLICK = f"""{HEAD}<script>
const never = '<script>' + '<!--' + '../common/pictures/' + 'b.png';
var genProblem = function () {{
  const number = core.randi(10, 99), day = new Date().toISOString().slice(0, 10);
  document.getElementById('query').textContent = `Click the button ${{number}} of ${{day}}.`;
  const right = document.getElementById('right'), wrong = document.getElementById('wrong');
  right.textContent = 'Button ' + number;
  right.onclick = () => core.endEpisode(1.0);
  wrong.onclick = () => core.endEpisode(-1.0);
  const echo = document.getElementById('echo');
  echo.oninput = () => {{ document.getElementById('shown').innerHTML = echo.value; }};
}};
window.onload = () => core.startEpisode();
</script></head><body>
<div id="query"></div><img src="../common/pictures/a.png">
<button id="right" style="position: fixed; left: 100px; top: 60px; width: 100px; height: 30px"></button>
<button id="wrong" style="position: fixed; left: 100px; top: 120px; width: 100px; height: 30px">Other</button>
<input id="echo" style="position: fixed; left: 100px; top: 180px; width: 100px; height: 30px"><p id="shown"></p>
</body></html>
"""
PAGES = {
    "click-it": CLICK,
    "find-midpoint": CLICK,
    "broken": CLICK.replace("core.randi(10, 99)", "x"),
    "silent": CLICK,
    "chase-circle": CLICK,
    "strange": "<html><head></head><body>hello</body></html>",
}


def package(folder: Path) -> Path:
    """A folder that holds the package and its metadata, as pip leaves them."""
    site = folder / "site"
    html = site / "miniwob/html"
    for name in ("core", "miniwob", "common/pictures", "flight/AA"):
        (html / name).mkdir(parents=True)
    (site / "miniwob-9.9.dist-info").mkdir()
    (site / "miniwob-9.9.dist-info/METADATA").write_text("Name: miniwob\nVersion: 9.9\nLicense: MIT License\n")
    (html / "core/core.js").write_text(CORE)
    (html / "core/core.css").write_text(
        "body { background: #def url(../common/pictures/a.png) }\n"
        "#sync-task-cover { position: absolute; inset: 0; background: #fff }\n"
    )
    for name in ("a.png", "b.png"):
        (html / "common/pictures" / name).write_bytes(PNG)
    for name, page in PAGES.items():
        (html / "miniwob" / f"{name}.html").write_text(page)
    (folder / "outside.html").write_text(CLICK)
    (html / "miniwob/linked.html").symlink_to(folder / "outside.html")
    (html / "flight/AA/wrapper.html").write_text("<iframe></iframe>")
    return site
