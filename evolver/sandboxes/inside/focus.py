"""Whether the window that has the keyboard has read what was sent to it: its answer to _NET_WM_PING comes after it."""

import contextlib
import select
import time

from Xlib import X
from Xlib.error import BadWindow, CatchError
from Xlib.protocol import event

FIRST_STAMP = 0x7E000000  # the window manager counts its own questions from 1
ASK_AGAIN_S = 0.3  # the window may have closed meanwhile, and another one may have the keyboard
OPENING_S = 1.0
ROUNDS = 4
MUTE_S = 0.06  # for windows that never answer


class Focus:
    def __init__(self, display, xvfb_pid):
        self.display, self.root, self.stamp, self.xvfb_pid = display, display.screen().root, FIRST_STAMP, xvfb_pid
        self.protocols, self.ping = display.intern_atom("WM_PROTOCOLS"), display.intern_atom("_NET_WM_PING")
        self.pid = display.intern_atom("_NET_WM_PID")

    @contextlib.contextmanager
    def listening(self):
        """Answers are sent to the root window: they are heard in here alone."""
        self.root.change_attributes(event_mask=X.SubstructureNotifyMask)
        try:
            yield
        finally:
            self.root.change_attributes(event_mask=X.NoEventMask)

    def wait_for_one(self):
        """Waits a moment for a window that takes keys: one that has just opened is given the keyboard late."""
        until = time.monotonic() + OPENING_S
        while self._answering() is None and time.monotonic() < until:
            time.sleep(0.02)

    def has_read(self, until):
        """Waits until all that was sent so far is read; False when the time is over before."""
        first = self.stamp + 1
        while True:
            window = self._answering()
            if window is None:
                time.sleep(MUTE_S)
                return True
            self.stamp += 1
            question = event.ClientMessage(
                window=window, client_type=self.protocols, data=(32, [self.ping, self.stamp, window.id, 0, 0])
            )
            window.send_event(question, onerror=CatchError(BadWindow))
            if self._answered(first, min(until, time.monotonic() + ASK_AGAIN_S)):
                return True
            if time.monotonic() > until:
                return False

    def rests(self, until, at_least_s):
        """Waits until the application has also done what it put off while keys came: several times in a row it has
        answered and its main thread sleeps, and not because it waits for the display."""
        window = self._answering()
        pid = window and self._property(window, self.pid)
        for _ in range(ROUNDS if pid else 0):
            time.sleep(at_least_s / ROUNDS)
            if not self.has_read(until):
                return
            while (_runs(pid[0]) or _runs(self.xvfb_pid)) and time.monotonic() < until:
                time.sleep(0.002)

    def _property(self, window, name):
        found = window.get_full_property(name, X.AnyPropertyType)
        return None if found is None else found.value

    def _answering(self):
        """The focused window, or the nearest one around it, that answers; None when there is none."""
        window = self.display.get_input_focus().focus
        with contextlib.suppress(BadWindow):
            while not isinstance(window, int) and window != self.root:
                if self.ping in (self._property(window, self.protocols) or ()):
                    return window
                window = window.query_tree().parent
        return None

    def _answered(self, first, until):
        while True:
            while self.display.pending_events():
                seen = self.display.next_event()
                if seen.type & 0x7F == X.ClientMessage and seen.client_type == self.protocols:
                    kind, stamp = seen.data[1][:2]
                    if kind == self.ping and stamp >= first:
                        return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            select.select([self.display.fileno()], [], [], left)


def _runs(pid):
    """Whether the main thread of a process has work to do or waits for a disk."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"R", b"D")
    except OSError:
        return False
