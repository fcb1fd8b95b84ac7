"""What is inside every sandbox: the packages of the root file system, its settings, and the hashes that name them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from pydantic import JsonValue

from harnesses.harness import Environment

SUITE = "bookworm"
AGENT_UID = 1000
SCREEN_UID = 1001
RELAY_UID = 1002
PROXY_PORT = 3128  # on the sandbox's own loopback, where an allow-list lets it out
SITE = "/opt/evolver/site"  # grader libraries; not on the agent's Python path
AGENT_SITE = "/usr/local/lib/python3.11/dist-packages"
INSIDE = "/opt/evolver/inside"

# What an agent can do without is no part of the base (xdotool, say): an environment adds it, and another leaves it out.
TERMINAL_PACKAGES = (
    "python3", "python-is-python3", "python3-pil", "python3-lxml", "git", "ripgrep", "jq", "sqlite3", "zip", "unzip",
    "xz-utils", "bzip2", "less", "file", "procps", "psmisc", "ca-certificates", "tree", "bc", "nano", "curl",
)  # fmt: skip
DESKTOP_PACKAGES = (
    "xvfb", "openbox", "pcmanfm", "mousepad", "chromium", "xdg-utils", "xclip", "x11-utils",
    "x11-xserver-utils", "libreoffice-calc", "libreoffice-writer", "libreoffice-impress", "libreoffice-gtk3",
    "dbus", "dbus-x11", "at-spi2-core", "python3-pyatspi", "gir1.2-atspi-2.0", "libatk-adaptor", "libgail-common",
    "python3-xlib", "fonts-dejavu-core", "fonts-liberation", "fonts-noto-color-emoji", "fonts-nanum",
    "fonts-droid-fallback", "adwaita-icon-theme", "shared-mime-info", "desktop-file-utils",
)  # fmt: skip
# The import cuts directory times to whole seconds: the font cache no longer fits, and every start would scan all fonts.
IMAGE_STEPS = ("RUN fc-cache -sf",)
SHARED_CACHE = Path("/var/cache/evolver")
GRADER_WHEELS = ("openpyxl==3.1.5", "python-pptx==1.0.2", "python-docx==1.1.2")
GRADER_DEBS = ("python3-odf",)  # odfpy has no wheel: its files are taken out of the Debian package


def cache_dir() -> Path:
    """`$EVOLVER_CACHE`, else ~/.cache/evolver; root's is /var/cache/evolver (all can read it)."""
    own = SHARED_CACHE if os.geteuid() == 0 else Path.home() / ".cache" / "evolver"
    return Path(os.environ.get("EVOLVER_CACHE") or own).resolve()


def digest_of(*parts: str) -> str:
    """16 hex digits that name these texts, in this order."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def base_digest() -> str:
    """Names the root file system: packages, grader libraries, and the script that finishes it (16 hex digits)."""
    here = Path(__file__).parent
    parts = [json.dumps([SUITE, TERMINAL_PACKAGES, DESKTOP_PACKAGES, GRADER_WHEELS, GRADER_DEBS])]
    parts += [(here / "finish.sh").read_text()]
    return digest_of(*parts)


def inside_files() -> list[Path]:
    """The programs that run in the sandbox."""
    here = Path(__file__).parent
    return [*sorted(path for path in (here / "inside").iterdir() if path.is_file()), here / "mux.py"]


def inside_digest() -> str:
    """Names the programs that run in the sandbox (16 hex digits)."""
    sha = hashlib.sha256()
    for path in inside_files():
        sha.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()[:16]


def environment_digest(environment: Environment) -> str:
    """Names what an environment adds to the base, together with the base (16 hex digits)."""
    parts = [base_digest(), inside_digest(), *IMAGE_STEPS, *sorted(environment.apt), "|", *sorted(environment.pip)]
    return digest_of(*parts)


def server_command(environment: Environment, ttl_s: float, relay_fd: int | None = None) -> list[str]:
    """How the program that is PID 1 of a sandbox is started; `relay_fd` is the connection of its way out."""
    options: dict[str, JsonValue] = {
        "ttl_s": ttl_s,
        "screen": list(environment.screen) if environment.image == "desktop" else None,
        "proxy": PROXY_PORT if environment.network == "allowlist" else None,
        "relay_fd": relay_fd,
    }
    return ["/usr/bin/python3", "-I", "-S", f"{INSIDE}/server.py", json.dumps(options)]


def on_path(program: str) -> bool:
    return shutil.which(program) is not None
