"""OSWorld's set-up and post-config steps on our machine: files, commands and open applications, or why not."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import JsonValue

from devset.importers.commands import (
    UNFROZEN,
    lacking,
    needs_network,
    of_the_system,
    outside,
    plain,
    programs,
    unfit,
    words_of,
)
from devset.importers.offer import HOME, ImportFailed, Loose, Refusals
from devset.task import OpenApp

OFFICE = {
    "calc": (".xlsx", ".xls", ".ods", ".csv"),
    "writer": (".docx", ".doc", ".odt", ".rtf"),
    "impress": (".pptx", ".ppt", ".odp"),
}
# Every kind of step that desktop-env 1.0.2 knows and that has no counterpart here, with the reason to give.
UNFIT = {
    "change_wallpaper": "needs another desktop: it sets the wallpaper",
    "act": "its set-up drives the screen",
    "replay": "its set-up drives the screen",
    "close_window": "its set-up drives the screen",
    "chrome_open_tabs": "needs the network: it opens pages in Chrome",
    "chrome_close_tabs": "needs the network: it opens pages in Chrome",
    "update_browse_history": "needs the app google-chrome",
    "googledrive": "needs the network: Google Drive",
    "login": "needs the network: a login",
    "proxy": "needs the network: a proxy",
}
IDLE = ("sleep", "activate_window", "tidy_desktop")
SUDO = re.compile(r"(?:echo\s+\S+\s*\|\s*)?\bsudo\s+-S\s+(?!-)")
OWNER = re.compile(r"\bch(?:own|grp|attr)\s+(?:-\S+\s+)*(?!user\b|['\"]?\$)")  # another than the one user there is


class Step(Loose):
    """One entry of `config` or `postconfig`."""

    type: str
    parameters: dict[str, JsonValue] = {}  # noqa: RUF012 - pydantic copies defaults


@dataclass
class Machine:
    """The initial state in our terms. `terminal` says that a terminal window was open; `saves` that the evaluation
    saves the open document; `post` are the commands that run before the evaluation."""

    exec_files: dict[str, bytes] = field(default_factory=dict)
    hidden_files: dict[str, bytes] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    open: list[OpenApp] = field(default_factory=list)
    post: list[dict[str, JsonValue]] = field(default_factory=list)
    originals: dict[str, bytes] = field(default_factory=dict)
    terminal: bool = False
    saves: bool = False


def set_up(steps: tuple[Step, ...], machine: Machine, refusals: Refusals, find: Callable[[str], Path | None]) -> None:
    """Turns `config` into files, commands and open applications; `find` gives the local file behind a path."""
    for step in steps:
        given: Mapping[str, Any] = step.parameters
        if step.type in ("upload_file", "download"):
            _upload(step, machine, refusals, find)
        elif step.type == "open":
            _open(str(given.get("path", "")), machine, refusals)
        elif step.type == "launch":
            _launch(given, machine, refusals)
        elif step.type in ("execute", "command", "execute_with_verification"):
            _execute(given, machine, refusals)
        elif step.type not in IDLE:
            refusals.add(UNFIT.get(step.type, f"a set-up step we lack: {step.type}"))


def post_config(steps: tuple[Step, ...], machine: Machine, refusals: Refusals) -> None:
    """Keeps the commands of `postconfig`; saving through the keyboard becomes the agent's duty."""
    for step in steps:
        command = step.parameters.get("command", "")
        text = words_of(command)
        if step.type in IDLE or (step.type == "launch" and re.match(r"\s*pkill\b", text)):
            continue
        if step.type in ("execute", "command") and "pyautogui" in text:
            if not _only_saves(text):
                refusals.add("its evaluation drives the screen")
            machine.saves = True
        elif step.type in ("execute", "command"):
            if reason := unfit(command, bool(step.parameters.get("shell"))):
                refusals.add(f"its evaluation {reason}")
            machine.post.append({k: v for k, v in step.parameters.items() if k in ("command", "shell", "stdout")})
        elif step.type == "launch":
            refusals.add(f"its evaluation starts {text.split(' ')[0]}")
        else:
            refusals.add(UNFIT.get(step.type, f"a step of the evaluation that we lack: {step.type}"))


def home_file(path: object) -> str | None:
    """The path below the home, or None for one that lies elsewhere or in a folder that is not frozen."""
    text = path if isinstance(path, str) else ""
    for start in (f"{HOME}/", "~/"):
        if text.startswith(start) and ".." not in text and not UNFROZEN.match(text):
            return text.removeprefix(start)
    return None


def _upload(step: Step, machine: Machine, refusals: Refusals, find: Callable[[str], Path | None]) -> None:
    """`upload_file` names local files; a `download` is served from a copy that OSWorld's cache has left, if any."""
    key = "local_path" if step.type == "upload_file" else "url"
    files = step.parameters.get("files")
    for file in files if isinstance(files, list) else [files]:
        if not isinstance(file, dict) or not isinstance(file.get(key), str) or not isinstance(file.get("path"), str):
            raise ImportFailed(f"{step.type}.files: got {file!r:.120}, expected {key} and path")
        source, path = str(file[key]), str(file["path"])
        target = home_file(path)
        found = find(source) if key == "local_path" else find(downloaded(source, path)) or find(last_part(source))
        if found is None and key == "url":
            refusals.add(f"needs the network: it downloads {last_part(source)}")
        elif found is None:
            refusals.add(f"an input file is missing: {source}")
        elif target is None:
            refusals.add(f"needs a file outside of the home: {path}")
        else:
            machine.originals[source] = found.read_bytes()
            _place(target, found.read_bytes(), machine)


def downloaded(url: str, path: str) -> str:
    """What OSWorld calls a downloaded file in its cache."""
    return f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{Path(path).name}"


def last_part(url: str) -> str:
    return Path(unquote(urlsplit(url).path)).name or url


def _place(target: str, data: bytes, machine: Machine) -> None:
    if not machine.commands:
        machine.exec_files[target] = data
        return
    name = f"{len(machine.hidden_files)}"  # commands ran before it, so it comes when they have
    machine.hidden_files[name] = data
    path = shlex.quote(f"{HOME}/{target}")
    machine.commands.append(f'mkdir -p "$(dirname {path})" && cp "$HIDDEN/{name}" {path}')


def _open(path: str, machine: Machine, refusals: Refusals) -> None:
    suffix = Path(path).suffix.lower()
    module = next((name for name, suffixes in OFFICE.items() if suffix in suffixes), None)
    if module is None and suffix not in (".txt", ".md", ".log", ".json", ".py", ".html"):
        refusals.add(f"needs an app for {suffix or path}")
        return
    command = f"soffice --{module} {shlex.quote(path)}" if module else f"mousepad {shlex.quote(path)}"
    machine.open.append(OpenApp(command=command, window=Path(path).name))


def _launch(given: Mapping[str, Any], machine: Machine, refusals: Refusals) -> None:
    words = given["command"] if isinstance(given.get("command"), list) else str(given.get("command", "")).split()
    program = next((word for word in map(str, words) if "=" not in word), "")
    if program in ("libreoffice", "soffice"):
        command = " ".join(shlex.quote(str(word)) for word in ["soffice", *words[1:]])
        files = [Path(str(word)).name for word in words[1:] if "." in str(word) and not str(word).startswith("-")]
        machine.open.append(OpenApp(command=command, window=files[0] if files else "LibreOffice"))
    elif program in ("gnome-terminal", "xterm", "x-terminal-emulator"):
        machine.terminal = True
    else:
        refusals.add(f"needs the app {program}")


def _execute(given: Mapping[str, Any], machine: Machine, refusals: Refusals) -> None:
    text = words_of(given.get("command", ""))
    if "pyautogui" in text:
        machine.terminal |= bool(re.search(r"hotkey\([^)]*ctrl[^)]*alt[^)]*t", text))
        rest = re.sub(
            r"pyautogui\.(click|hotkey|moveTo|press|sleep)\([^)]*\)|import[^;]*|time\.sleep\([\d.]*\)", "", text
        )
        if re.search(r"pyautogui\.\w+\(|typewrite|drag", rest):
            refusals.add("its set-up drives the screen")
        return
    words, as_root = given.get("command"), SUDO.search(text)
    shell = bool(given.get("shell")) or not isinstance(words, list)
    command = SUDO.sub("", text)
    if re.fullmatch(r"su - \w+", command):  # ends at once and leaves nothing behind
        return
    started, code = programs(command if shell else words, shell), plain(command)
    if needs_network(code, started):
        refusals.add(f"needs the network: {command[:80]}")
    elif found := lacking(started):
        refusals.add(f"its set-up needs the program {found}")
    elif "sudo" in started or OWNER.search(code) or (as_root and outside(code)):
        refusals.add(f"its set-up needs root: {command[:80]}")
    elif found := of_the_system(started):
        refusals.add(f"its set-up needs another desktop or another user: {found}")
    else:
        machine.commands.append(_step(command if shell else words))


def _step(command: JsonValue) -> str:
    """One command in a shell of its own, as the original runs it: the next begins in the home again, whatever becomes
    of this one. Only a program that our machine lacks ends the set-up."""
    if isinstance(command, list):
        words = [f"{HOME}{word[1:]}" if word.startswith("~/") else word for word in map(str, command)]
    else:
        words = ["sh", "-c", str(command)]
    return f"{shlex.join(words)} || [ $? -ne 127 ]"


def _only_saves(text: str) -> bool:
    """Whether a script of pyautogui does nothing but save: ctrl+s, and return for the question that may follow."""
    calls = re.findall(r"pyautogui\.(\w+)\(([^)]*)\)", text)
    for name, arguments in calls:
        keys = re.findall(r"['\"]([^'\"]*)['\"]", arguments.lower())
        if not (name == "hotkey" and keys == ["ctrl", "s"]) and not (
            name == "press" and keys in (["return"], ["enter"])
        ):
            return False
    return bool(calls)
