"""The screen: Xvfb under its own user, frames read from its memory-mapped frame buffer, window titles over X."""

import contextlib
import mmap
import os
import struct
import subprocess
import time
import zlib

import people

FOLDER = "/run/screen" if people.SEPARATE else "/tmp/.screen"
QUIET_S = 0.25  # the screen has settled when it has not changed for this long while programs rest
BUSY_QUIET_S = 2.5  # or for this long although they work (a job in the background, or a window that is still loading)
IDLE_SHARE = 0.2  # of one core
AFTER_ACT_S = 0.45  # and not earlier than this after an action: applications answer late
OPENED_S = 1.0  # nor after a window came or went: a browser that is drawn already may lose the first keys all the same


class ScreenLost(Exception):
    """The X server or the desktop is gone."""


def png(width, height, rgb):
    """The pixels as a PNG without row filters: on flat areas these take most of the time and save little."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    line = 3 * width
    rows = b"".join(b"\0" + rgb[at : at + line] for at in range(0, line * height, line))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows, 1)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


class Screen:
    def __init__(self, width, height, env):
        self.width, self.height, self.last_act = width, height, 0.0
        self._managed, self._opened = (), 0.0
        self._frame, self._last, self._x, self._ready = None, (None, None), None, False
        if not people.SEPARATE:
            os.makedirs(FOLDER, exist_ok=True)
        self.xvfb = people.popen(
            ["Xvfb", ":0", "-screen", "0", f"{width}x{height}x24", "-fbdir", FOLDER, "-nolisten", "tcp", "-noreset",
             "-ac"],
            uid=people.SCREEN, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PATH": people.ENV["PATH"], "HOME": "/tmp"},
        )  # fmt: skip
        here = os.path.dirname(os.path.abspath(__file__))
        self.desktop = people.popen(
            ["bash", f"{here}/desktop.sh"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        people.KNOWN[self.xvfb.pid] = self.xvfb
        people.KNOWN[self.desktop.pid] = self.desktop

    def wait_for_x(self, limit_s=30):
        deadline = time.monotonic() + limit_s
        while not os.path.exists("/tmp/.X11-unix/X0"):
            if self.xvfb.poll() is not None or time.monotonic() > deadline:
                raise ScreenLost("the X server did not start")
            time.sleep(0.005)

    @property
    def x(self):
        """The connection to the X server (python-xlib), opened at the first use."""
        if self.xvfb.poll() is not None:
            raise ScreenLost("the X server has ended")
        if self._x is None:
            self.wait_for_x()
            from Xlib import display

            os.environ["DISPLAY"] = ":0"
            self._x = display.Display()
        return self._x

    def wait_ready(self, limit_s=45):
        """Returns once the desktop's own window is mapped, so that the first picture shows what a person would see."""
        if self._ready:
            return
        deadline = time.monotonic() + limit_s
        while not any(desktop for _, desktop in self._clients()):
            if time.monotonic() > deadline:
                raise ScreenLost("the desktop did not start")
            time.sleep(0.02)
        self._note_windows()
        self._opened, self._ready = 0.0, True

    def _property(self, window, name):
        found = window.get_full_property(self.x.intern_atom(name), 0)
        return None if found is None else found.value

    def _note_windows(self):
        """Keeps when a window was first seen to have come or gone."""
        managed = tuple(self._property(self.x.screen().root, "_NET_CLIENT_LIST") or ())
        if managed != self._managed:
            self._managed, self._opened = managed, time.monotonic()

    def _clients(self, order="_NET_CLIENT_LIST"):
        """(title, is the desktop) of the windows that the window manager manages."""
        from Xlib.error import BadWindow

        kind = self.x.intern_atom("_NET_WM_WINDOW_TYPE_DESKTOP")
        found = []
        for wid in self._property(self.x.screen().root, order) or ():
            with contextlib.suppress(BadWindow):
                window = self.x.create_resource_object("window", wid)
                title = self._property(window, "_NET_WM_NAME") or self._property(window, "WM_NAME") or b""
                title = title.decode("utf-8", "replace") if isinstance(title, bytes) else str(title)
                found.append((title, kind in (self._property(window, "_NET_WM_WINDOW_TYPE") or ())))
        return found

    def windows(self, order="_NET_CLIENT_LIST"):
        """Titles, oldest first; with _NET_CLIENT_LIST_STACKING the topmost last."""
        self.wait_ready()
        self._note_windows()
        return [title for title, desktop in self._clients(order) if not desktop]

    def _pixels(self):
        """The raw frame (BGRX rows), straight from the X server's memory."""
        if self._frame is None:
            path = f"{FOLDER}/Xvfb_screen0"
            with people.acting_as(people.SCREEN):
                handle = os.open(path, os.O_RDONLY)
            with os.fdopen(handle, "rb") as file:
                self._frame = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            header = struct.unpack(">25I", self._frame[:100])  # X window dump: sizes are big-endian words
            self._start, self._stride = header[0] + header[19] * 12, header[12]
        self.x.sync()
        return self._frame[self._start : self._start + self._stride * self.height]

    def shot(self, settle_s):
        """(png, settled): waits until the picture stands still, `settle_s` seconds at most."""
        self.wait_ready()
        started = now = time.monotonic()
        pixels, still_since, settled = self._pixels(), now, False
        worked = people.work({self.xvfb.pid})[0]
        while now - started < settle_s:
            time.sleep(0.05)
            fresh, now = self._pixels(), time.monotonic()
            self._note_windows()
            earliest = max(still_since + QUIET_S, self.last_act + AFTER_ACT_S, self._opened + OPENED_S)
            if fresh != pixels:
                pixels, still_since, worked = fresh, now, people.work({self.xvfb.pid})[0]
            elif now >= earliest:
                used, waiting = people.work({self.xvfb.pid})
                busy = waiting or used - worked > IDLE_SHARE * (now - still_since)
                if not busy or now - still_since >= BUSY_QUIET_S:
                    settled = True
                    break
        if self._last[0] != pixels:
            from PIL import Image

            image = Image.frombuffer("RGB", (self.width, self.height), pixels, "raw", "BGRX", self._stride, 1)
            self._last = (pixels, png(self.width, self.height, image.tobytes()))
        return self._last[1], settled
