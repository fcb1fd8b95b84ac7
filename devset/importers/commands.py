"""What a published shell command starts and looks at: why our machine, or a frozen home, can't offer it."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

from pydantic import JsonValue

NETWORK = re.compile(r"\b(git\s+clone|pip3?\s+install|apt(-get)?\s+(update|install)|snap\s+install)\b")
ONLINE = frozenset({"curl", "wget"})
# Programs that read or change what is no file of the home.
SYSTEM = frozenset({
    "gsettings", "dconf", "xdg-mime", "xdg-settings", "ufw", "getent", "systemctl", "service", "loginctl",
    "timedatectl", "nmcli", "pactl", "amixer", "ps", "pgrep", "pkill", "xrandr", "xdotool", "wmctrl", "xprop",
    "snap", "apt", "apt-get", "dpkg", "code", "google-chrome", "chrome", "gimp", "vlc", "thunderbird", "nautilus",
    "crontab", "useradd", "usermod", "chsh", "id", "who", "ssh", "docker", "mount", "lsof", "netstat", "ss", "pip",
    "pip3", "sudo",
})  # fmt: skip
# Programs of the original's machine that ours does not have.
ABSENT = frozenset({
    "xxd", "hexdump", "column", "rename", "pdftotext", "pdfinfo", "convert", "identify", "ffmpeg", "ffprobe",
    "exiftool", "node", "npm", "php", "java", "javac", "gcc", "g++", "make", "cmake", "go", "zsh", "tmux", "screen",
    "gawk", "rsync", "7z", "unrar", "mysql", "psql", "getfacl", "setfacl", "ip", "ifconfig", "sar", "gio",
})  # fmt: skip
UNFROZEN = re.compile(
    r"(?:(?:~|\$HOME|\$\{HOME\}|/home/user)/|home\(\)\s*/\s*['\"])\.(?:config|cache|local|mozilla|dbus|pki|gnupg)\b"
)
# Not what follows a word, a variable, `$( )`, a closing quote, or the scheme of an address.
OUTSIDE = re.compile(
    r"(?<![\w.$}~*<:/)-])(?<![\w})]['\"])/(?!home/user\b|dev/null\b|usr/bin/env\b|bin/(?:ba)?sh\b)[a-z]+(?:/[\w.-]+)*"
)
# A script or a text in quotes is no path; what follows it, and what the shell puts into it, may be one.
SCRIPT = re.compile(
    r"""\b((?:sed|awk|perl)(?:\s+-(?:[Fv]\s*\S+|[^\sf'"]*))*|(?:[ef]?grep|echo|printf)(?:\s+-[^\sf'"]*)*)"""
    r"""\s+(?:'[^']*'|"[^"$`]*")"""
)
HERE = re.compile(
    r"^(?P<line>[^\n]*?)<<-?[ \t]*(['\"]?)(\w+)\2(?P<rest>[^\n]*)\n(?P<body>.*?)^[ \t]*\3[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
OPERATORS = "();<>|&`\n"
# Words that a command may begin with before the program is named.
BEFORE = frozenset({
    "then", "do", "else", "elif", "if", "while", "until", "time", "exec", "eval", "xargs", "env", "nohup", "command",
    "builtin", "which", "type", "nice", "timeout", "{", "!",
})  # fmt: skip
ASSIGNED = re.compile(r"\w+\+?=")
STARTS = re.compile(r"subprocess|os\.system|os\.popen")  # in Python


def plain(text: str, writers: str = r"\b(?:cat|tee)\b") -> str:
    """`text` without the here-documents that these programs get: what is written into a file is data."""
    return HERE.sub(
        lambda found: found["line"] + found["rest"] if re.search(writers, found["line"]) else found[0], text
    )


def unfit(command: JsonValue, shell: bool = True) -> str | None:
    """Why a command of an evaluation can't be run beside the frozen home, or None."""
    text, started = plain(words_of(command)), programs(command, shell)
    if found := needs_network(text, started):
        return f"needs the network: {found}"
    if found := lacking(started):
        return f"needs the program {found}"
    if found := of_the_system(started):
        return f"asks for what is not frozen: {found}"
    if path := UNFROZEN.search(SCRIPT.sub(r"\1 ", text)) or outside(text):
        return f"reads what is not frozen: {path[0]}"
    return None


def needs_network(text: str, started: frozenset[str]) -> str | None:
    found = NETWORK.search(text)
    return found[0] if found else min(started & ONLINE, default=None)


def lacking(started: frozenset[str]) -> str | None:
    return min(started & ABSENT, default=None)


def of_the_system(started: frozenset[str]) -> str | None:
    return min((one for one in started if one in SYSTEM or one.startswith("gnome-")), default=None)


def outside(text: str) -> re.Match[str] | None:
    """The first path that lies outside of the home."""
    return OUTSIDE.search(SCRIPT.sub(r"\1 ", text))


def words_of(command: JsonValue) -> str:
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def programs(command: JsonValue, shell: bool = True) -> frozenset[str]:
    """The names of the programs that a command starts, also in `$( )`, in the script of `sh -c`, and in Python's
    `subprocess`. Other here-documents, and what follows a quote that is not closed, are not looked at."""
    text = shlex.join(map(str, command)) if isinstance(command, list) and not shell else words_of(command)
    scripts = (here["body"] for here in HERE.finditer(plain(text)))
    return frozenset((*_started(plain(text, "")), *(name for script in scripts for name in _in_python(script))))


def _started(text: str) -> Iterator[str]:
    program, before = "", ""
    around: list[str] = []
    for token in _tokens(text):
        option, before = before, token
        if not token.strip(OPERATORS):
            program = _after(token, program, around)
        elif program:
            if re.fullmatch(r"-\w*c", option) and re.fullmatch(r"(ba|da|z)?sh", program):
                yield from _started(token)
            elif option == "-c" and program.startswith("python"):
                yield from _in_python(token)
        elif not (_redirects(option) or ASSIGNED.match(token) or token in BEFORE or token[0] in "-0123456789"):
            program = posixpath.basename(token)
            yield program
        for inner in re.split(r"\$\(|`", token)[1:]:  # in double quotes
            yield from _started(inner)


def _in_python(code: str) -> Iterator[str]:
    if STARTS.search(code):
        yield from re.findall(r"""['"]([\w.-]+)(?=[\s'"])""", code)


def _tokens(text: str) -> Iterator[str]:
    """Words without their quotes, and operators."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        yield from (token or "''" for token in lexer)
    except ValueError:  # a quote that is not closed
        return


def _after(operator: str, program: str, around: list[str]) -> str:
    """The program whose arguments follow: none yet where a command begins; `around` are those of the open brackets."""
    if _redirects(operator):
        return program
    for char in operator:
        if char == "(":
            around.append(program)
        program = around.pop() if char == ")" and around else ""
    return "" if operator == "()" else program


def _redirects(token: str) -> bool:
    return set(token) <= set("<>&") and bool(set(token) & set("<>"))
