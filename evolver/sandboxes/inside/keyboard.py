"""Mouse and keyboard through XTEST, in process; every key and button is up again when an action ends."""

import contextlib
import time

from focus import Focus
from keymap import Keymap
from keysyms import BadAction, chord, keysym_named, keysyms_of
from Xlib import X
from Xlib.ext import xtest

RETURN = keysym_named("Return")
BUTTONS = {
    "left_click": (1, 1),
    "double_click": (1, 2),
    "triple_click": (1, 3),
    "middle_click": (2, 1),
    "right_click": (3, 1),
}
LEARN_S = 0.03  # what a client with several connections takes to learn of a changed layout
LEARNT_S = 1.0  # a busy one takes longer: it is asked whether it has read so far
APART_S = 0.55  # applications count clicks together for up to half a second, some of them wherever they are
BASIC_PLANE = 0x0100FFFF
HELD_S, BETWEEN_S = 0.005, 0.03  # a button is held, and let go of within a double click, for this long
FOCUS_S = 0.05  # what the window manager takes to give a clicked window the keyboard
GLANCE = 32  # characters between two looks at whether the application keeps up
TAP_S = 0.001  # what is left between two characters: a browser's window reads at once what its page takes its time for
CHORD_S = 5.0
PUT_OFF_S, FIRST_RETURN_S = 0.03, 0.3  # a word processor keeps quick keys back for 20 ms, and its first Return longer
NEEDS_S, CHANGE_S = 0.004, 0.2  # what a character, and what a change of the layout, may take when all goes well


def runs(symbols):
    """Cuts what is typed where an application must have taken it in before more comes: after GLANCE characters, after a
    Return, and between characters of the basic plane and others, which a word processor takes in by different ways."""
    run = []
    for symbol in symbols:
        if run and (len(run) == GLANCE or run[-1] == RETURN or (run[-1] > BASIC_PLANE) != (symbol > BASIC_PLANE)):
            yield run
            run = []
        run.append(symbol)
    yield run


class Input:
    def __init__(self, display, width, height, xvfb_pid):
        self.display, self.width, self.height = display, width, height
        self.root, self.focus = display.screen().root, Focus(display, xvfb_pid)
        self.held = []  # (release event, detail), latest last
        self.clicked = (0.0, 0)  # when and with which button the latest click was

    def act(self, action):
        """`action` has the fields of protocols.Act."""
        kind = action["kind"]
        time.sleep(max(0, self.clicked[0] + FOCUS_S - time.monotonic()))
        self._release_all()  # what a program of the agent still holds down would colour this action
        try:
            if kind == "key":
                with self.focus.listening():
                    self.focus.wait_for_one()
                    self._chord(chord(action["keys"] or action["text"]))
            elif kind == "type":
                with self.focus.listening():
                    self.focus.wait_for_one()
                    self._type(keysyms_of(action["text"]), action["timeout_s"])
            elif kind == "wait":
                time.sleep(min(max(action["seconds"], 0), 60))
            elif kind == "mouse_move":
                self._move(*self._point(action["x"], action["y"]))
            elif kind in BUTTONS:
                button, times = BUTTONS[kind]
                self._click(button, times, action)
            elif kind == "left_click_drag":
                self._drag(action)
            elif kind in ("scroll", "hscroll"):
                self._scroll(kind, action)
            else:
                raise BadAction(f"unknown action {kind!r}")
        finally:
            self._release_all()

    def _press(self, detail, button=False):
        xtest.fake_input(self.display, X.ButtonPress if button else X.KeyPress, detail)
        self.held.append((X.ButtonRelease if button else X.KeyRelease, detail))

    def _release(self):
        event, detail = self.held.pop()
        xtest.fake_input(self.display, event, detail)

    def _release_all(self):
        while self.held:
            self._release()
        for index, bits in enumerate(self.display.query_keymap()):
            for bit in range(8):
                if bits >> bit & 1:
                    xtest.fake_input(self.display, X.KeyRelease, index * 8 + bit)
        buttons = self.root.query_pointer().mask >> 8
        for button in range(1, 6):
            if buttons >> (button - 1) & 1:
                xtest.fake_input(self.display, X.ButtonRelease, button)
        self.display.sync()

    def _point(self, x, y):
        if x is None or y is None:
            raise BadAction("the action needs x and y")
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise BadAction(f"({x}, {y}) is not on the {self.width}x{self.height} screen")
        return x, y

    def _move(self, x, y):
        xtest.fake_input(self.display, X.MotionNotify, x=x, y=y)
        self.display.sync()

    def _click(self, button, times, action):
        if action["x"] is not None or action["y"] is not None:
            self._move(*self._point(action["x"], action["y"]))
        self._apart(button)
        if action["keys"].strip():  # e.g. ctrl, held during the click
            keymap = Keymap(self.display)
            for symbol in chord(action["keys"]):
                self._press(keymap.keycode(symbol)[0])
        for nth in range(times):
            time.sleep(BETWEEN_S if nth else 0)
            self._press(button, button=True)
            self.display.sync()
            time.sleep(HELD_S)
            self.held.remove((X.ButtonRelease, button))
            xtest.fake_input(self.display, X.ButtonRelease, button)
            self.display.sync()
        self.clicked = (time.monotonic(), button)

    def _apart(self, button):
        """Keeps a click from counting as the second or fourth one of an earlier action."""
        when, last = self.clicked
        if button == last:
            time.sleep(max(0, when + APART_S - time.monotonic()))

    def _drag(self, action):
        to_x, to_y = self._point(action["to_x"], action["to_y"])
        if action["x"] is not None:
            self._move(*self._point(action["x"], action["y"]))
        self._apart(1)
        start = self.root.query_pointer()
        self._press(1, button=True)
        self.display.sync()
        time.sleep(0.08)
        steps = 16
        for step in range(1, steps + 1):
            x = start.root_x + (to_x - start.root_x) * step // steps
            y = start.root_y + (to_y - start.root_y) * step // steps
            xtest.fake_input(self.display, X.MotionNotify, x=x, y=y)
            self.display.sync()
            time.sleep(0.015)
        time.sleep(0.08)
        self._release_all()
        self.clicked = (time.monotonic(), 1)

    def _scroll(self, kind, action):
        """Positive is down, or right for hscroll; one unit is one notch of the wheel."""
        if action["x"] is not None:
            self._move(*self._point(action["x"], action["y"]))
        amount = action["amount"]
        if abs(amount) > 100:
            raise BadAction(f"scroll by at most 100 notches, got {amount}")
        forward, back = (5, 4) if kind == "scroll" else (7, 6)
        for _ in range(abs(amount)):
            self._press(forward if amount > 0 else back, button=True)
            self._release()
            self.display.sync()
            time.sleep(0.01)

    def _chord(self, symbols):
        keymap = Keymap(self.display)
        lacking = list(dict.fromkeys(symbol for symbol in symbols if symbol not in keymap.keys))
        with self._lent(keymap, lacking):
            for symbol in symbols:
                code, shifted = keymap.keycode(symbol)
                if shifted:
                    self._press(keymap.shift)
                self._press(code)
            self.display.sync()
            time.sleep(0.03)
            self._release_all()
            if lacking:
                self.focus.has_read(time.monotonic() + CHORD_S)

    @contextlib.contextmanager
    def _lent(self, keymap, symbols):
        """The layout with these symbols on it. A client looks a key up when it reads it: leave when it has read."""
        if not symbols:
            yield
            return
        keymap.lend(symbols)
        try:
            time.sleep(LEARN_S)
            self.focus.has_read(time.monotonic() + LEARNT_S)
            yield
            time.sleep(LEARN_S)
        finally:
            keymap.take_back(symbols)

    def _type(self, symbols, timeout_s):
        """All of it or an error: what can't be done in time isn't begun, and what turns out so isn't gone on with."""
        until, done = time.monotonic() + timeout_s, 0
        if self.root.query_pointer().mask & X.LockMask:
            self._chord([keysym_named("Caps_Lock")])
        keymap = Keymap(self.display)
        parts = keymap.parts(symbols)
        needs = len(symbols) * NEEDS_S + len(parts) * CHANGE_S
        if needs > timeout_s:
            raise BadAction(
                f"typing {len(symbols)} characters takes about {needs:.0f} s and the call has {timeout_s:g} s: "
                "nothing was typed; type less at a time"
            )
        for part, lacking in parts:
            with self._lent(keymap, lacking):
                for run in runs(part):
                    for symbol in run:
                        self._tap(keymap, symbol)
                    done += len(run)
                    if not self.focus.has_read(until):
                        raise BadAction(
                            f"the application did not keep up: {done} of {len(symbols)} characters were typed in "
                            f"{timeout_s:g} s, and no more will be"
                        )
                    first = run[-1] == RETURN and RETURN not in symbols[: done - 1]
                    self.focus.rests(until, FIRST_RETURN_S if first else PUT_OFF_S)

    def _tap(self, keymap, symbol):
        code, shifted = keymap.keycode(symbol)
        if shifted:
            self._press(keymap.shift)
        self._press(code)
        self._release()
        if shifted:
            self._release()
        self.display.flush()
        time.sleep(TAP_S)
