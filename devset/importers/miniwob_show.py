"""Runs in the sandbox, as a task's witness: shows a page in a browser of its own and prints what the page says.

Usage: show.py PAGE [headless]. The page's file is gone once it is loaded. Only what bears the page's secret counts; it
is drawn here. The browser has no developer tools, no address bar, no way to save, and runs no other script.
"""

import ctypes
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

NO_DUMP = 4  # PR_SET_DUMPABLE: another process of this user can open neither the pipe nor the memory
PLACE = "@SECRET@"
PREFERENCES = {
    "devtools": {"availability": 2, "remote_debugging": {"allowed": False}},  # 2 is disallowed
    "policy": {"url_blocklist": ["*", "chrome://*"], "url_allowlist": [f"file://{Path.cwd()}/"]},
    "printing": {"enabled": False},
    "translate": {"enabled": False},
    "credentials_enable_service": False,
}
STATE = {"select_file_dialogs": {"allowed": False}}
FLAGS = ("--enable-logging=stderr", "--log-level=0", "--disable-extensions", "--disable-sync", "--lang=en-US")
SHOWN = ("--kiosk", "--force-app-mode", "--force-device-scale-factor=3")
UNSEEN = ("--headless=new", "--window-size=800,600")
# Whoever may use the screen can tell a program that uses GTK to load a library of theirs (XSETTINGS, Gtk/Modules). So
# the browser finds these instead of GTK and goes without.
INSTEAD_OF_GTK = ("libgtk-3.so.0", "libgtk-4.so.1")


def main() -> None:
    ctypes.CDLL(None).prctl(NO_DUMP, 0, 0, 0, 0)
    here, headless = Path.cwd(), "headless" in sys.argv
    secret = secrets.token_hex(16)
    pages = sorted(here.glob("*.html"))
    for page in pages:
        page.write_text(page.read_text(encoding="utf-8").replace(PLACE, secret), encoding="utf-8")
    for name, settings in (("Default/Preferences", PREFERENCES), ("Local State", STATE)):
        path = here / "profile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings), encoding="utf-8")
    empty = here / "instead"
    empty.mkdir()
    for name in INSTEAD_OF_GTK:
        (empty / name).touch()
    browser = subprocess.Popen(
        ["chromium", *FLAGS, *(UNSEEN if headless else SHOWN), f"--user-data-dir={here}/profile",
         f"{'' if headless else '--app='}file://{here / sys.argv[1]}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=os.environ | {"LD_LIBRARY_PATH": str(empty)},
    )  # fmt: skip
    mark = f'"{secret} '.encode()
    for line in browser.stderr or ():
        if mark not in line:
            continue
        said = json.loads(line.partition(mark)[2].rpartition(b'", source: ')[0])
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        if "asked" in said and not headless:
            for page in pages:
                page.unlink(missing_ok=True)
        if "end" in said:
            browser.terminate()


if __name__ == "__main__":
    main()
