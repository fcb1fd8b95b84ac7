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
POINTER = 32  # pixels: its picture is no larger, and is part of the frame
CLOSE_S = 3.0  # what windows that are asked to close may take; one that asks back (save changes?) takes all of it
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
        while not any(desktop for _, desktop, *_ in self._clients()):
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
        """(title, is the desktop, window, its process) of the windows that the window manager manages."""
        from Xlib.error import BadWindow

        kind = self.x.intern_atom("_NET_WM_WINDOW_TYPE_DESKTOP")
        found = []
        for wid in self._property(self.x.screen().root, order) or ():
            with contextlib.suppress(BadWindow):
                window = self.x.create_resource_object("window", wid)
                title = self._property(window, "_NET_WM_NAME") or self._property(window, "WM_NAME") or b""
                title = title.decode("utf-8", "replace") if isinstance(title, bytes) else str(title)
                pid = (self._property(window, "_NET_WM_PID") or (0,))[0]
                desktop = kind in (self._property(window, "_NET_WM_WINDOW_TYPE") or ())
                found.append((title, desktop, window, pid))
        return found

    def windows(self, order="_NET_CLIENT_LIST", drawn=False):
        """Titles, oldest first; with _NET_CLIENT_LIST_STACKING the topmost last. `drawn`: only where more than one
        colour is to be seen."""
        self.wait_ready()
        self._note_windows()
        found = [(title, window) for title, desktop, window, _ in self._clients(order) if not desktop]
        return [title for title, window in found if not drawn or self._is_drawn(window)]

    def _is_drawn(self, window):
        """Whether its place on the screen shows more than one colour, beside the mouse pointer."""
        from Xlib.error import XError

        try:
            root = self.x.screen().root
            size, place, pointer = window.get_geometry(), root.translate_coords(window, 0, 0), root.query_pointer()
        except XError:  # it has just gone
            return False
        pixels, seen = self._pixels(), None
        left, right = max(place.x, 0), min(place.x + size.width, self.width)
        for y in range(max(place.y, 0), min(place.y + size.height, self.height)):
            beside = (left, pointer.root_x - POINTER), (max(pointer.root_x + POINTER, left), right)
            for start, end in beside if abs(y - pointer.root_y) <= POINTER else ((left, right),):
                at, wide = y * self._stride + 4 * start, 4 * max(0, min(end, right) - start)
                row = pixels[at : at + wide]
                seen = seen or row[:4]
                if row != (seen or b"") * (len(row) // 4):
                    return True
        return False

    def close_windows(self, limit_s=CLOSE_S):
        """Asks every window to close, and returns when the programs behind those that did have ended: until then some
        of them write what they know. Nobody answers what a window asks back."""
        from Xlib.error import ConnectionClosedError, DisplayError

        with contextlib.suppress(ConnectionClosedError, DisplayError, ScreenLost):  # the agent has ended the screen
            if os.path.exists("/tmp/.X11-unix/X0"):
                self._close_windows(limit_s)

    def _close_windows(self, limit_s):
        found = self._clients()
        kept = {pid for _, desktop, _, pid in found if desktop}  # the file manager draws the desktop, too
        asked = {window.id: pid for _, desktop, window, pid in found if not desktop}
        for _, desktop, window, _ in found:
            if not desktop:
                self._ask_to_close(window)
        deadline = time.monotonic() + limit_s
        while asked and time.monotonic() < deadline:
            people.reap(people.KNOWN)
            open_, running = {window.id for _, _, window, _ in self._clients()}, people.parents()
            asked = {wid: pid for wid, pid in asked.items() if wid in open_ or (pid in running and pid not in kept)}
            time.sleep(0.02)

    def _ask_to_close(self, window):
        from Xlib import X
        from Xlib.protocol import event

        pager = 2  # not the window's own program asks
        asked = event.ClientMessage(
            window=window,
            client_type=self.x.intern_atom("_NET_CLOSE_WINDOW"),
            data=(32, [X.CurrentTime, pager, 0, 0, 0]),
        )
        self.x.screen().root.send_event(asked, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
        self.x.flush()

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
