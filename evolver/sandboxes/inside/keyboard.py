"""Mouse and keyboard through XTEST, in process; every key and button is up again when an action ends."""

import contextlib
import time

from Xlib import XK, X
from Xlib.ext import xtest

MODIFIERS = {
    "ctrl": "Control_L", "control": "Control_L", "alt": "Alt_L", "option": "Alt_L", "shift": "Shift_L",
    "super": "Super_L", "win": "Super_L", "windows": "Super_L", "meta": "Super_L", "cmd": "Super_L",
    "command": "Super_L",
}  # fmt: skip
ALIASES = MODIFIERS | {
    "enter": "Return", "return": "Return", "esc": "Escape", "escape": "Escape", "backspace": "BackSpace", "tab": "Tab",
    "space": "space", "del": "Delete", "delete": "Delete", "ins": "Insert", "insert": "Insert", "home": "Home",
    "end": "End", "pgup": "Page_Up", "pageup": "Page_Up", "page_up": "Page_Up", "prior": "Page_Up",
    "pgdn": "Page_Down", "pgdown": "Page_Down", "pagedown": "Page_Down", "page_down": "Page_Down", "next": "Page_Down",
    "up": "Up", "down": "Down", "left": "Left", "right": "Right", "arrowup": "Up", "arrowdown": "Down",
    "arrowleft": "Left", "arrowright": "Right", "printscreen": "Print", "prtsc": "Print", "prtscr": "Print",
    "print": "Print", "capslock": "Caps_Lock", "caps_lock": "Caps_Lock", "numlock": "Num_Lock", "menu": "Menu",
    "pause": "Pause", "plus": "plus", "minus": "minus", "comma": "comma", "period": "period", "dot": "period",
    "slash": "slash", "backslash": "backslash", "semicolon": "semicolon", "equal": "equal",
}  # fmt: skip
TYPED = {"\n": 0xFF0D, "\r": 0xFF0D, "\t": 0xFF09}
BUTTONS = {
    "left_click": (1, 1),
    "double_click": (1, 2),
    "triple_click": (1, 3),
    "middle_click": (2, 1),
    "right_click": (3, 1),
}
SETTLE_S = 0.06  # what a client takes to learn of a changed key map


class BadAction(Exception):
    """The action can't be done as asked; nothing was pressed."""


def keysym_of(char):
    code = ord(char)
    if char in TYPED:
        return TYPED[char]
    if code < 0x20 or code == 0x7F or 0xD800 <= code <= 0xDFFF:
        raise BadAction(f"can't type the control character U+{code:04X}")
    return code if code <= 0x7E or 0xA0 <= code <= 0xFF else 0x01000000 + code


def keysym_named(name):
    known = ALIASES.get(name.lower())
    if known is None and len(name) == 1:
        return keysym_of(name)
    for spelling in (known,) if known else (name, name.capitalize(), name.upper()):
        if symbol := XK.string_to_keysym(spelling):
            return symbol
    raise BadAction(
        f"unknown key {name!r}: use X keysym names such as ctrl, alt, shift, Return, Page_Down, F5, a, comma"
    )


def chord(keys):
    """The keysyms of `ctrl+shift+s`; a plus sign itself is `plus` or the last character of `ctrl++`."""
    text = keys.strip()
    names = [part.strip() for part in (text[:-1] if text.endswith("+") else text).split("+")]
    names = [name for name in names if name] + (["plus"] if text.endswith("+") else [])
    if not names:
        raise BadAction("key needs at least one key name")
    return [keysym_named(name) for name in names]


class Input:
    def __init__(self, display, width, height):
        self.display, self.width, self.height = display, width, height
        self.held = []  # (release event, detail), latest last
        info = display.display.info
        self.low, high = info.min_keycode, info.max_keycode
        self.map, self.spare = {}, []
        for offset, row in enumerate(display.get_keyboard_mapping(self.low, high - self.low + 1)):
            if not any(row):
                self.spare.append(self.low + offset)
            for column in (0, 1):
                if column < len(row) and row[column]:
                    self.map.setdefault(row[column], (self.low + offset, column))
        self.shift = self.map[XK.string_to_keysym("Shift_L")][0]

    def act(self, action):
        """`action` has the fields of protocols.Act."""
        kind = action["kind"]
        try:
            if kind == "key":
                self._chord(chord(action["keys"] or action["text"]))
            elif kind == "type":
                self._type(action["text"])
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
        time.sleep(0.02)

    def _click(self, button, times, action):
        if action["x"] is not None or action["y"] is not None:
            self._move(*self._point(action["x"], action["y"]))
        with self._modifiers(action["keys"]):
            for _ in range(times):
                self._press(button, button=True)
                self.display.sync()
                time.sleep(0.02)
                self._release()
                self.display.sync()
                time.sleep(0.04)

    @contextlib.contextmanager
    def _modifiers(self, keys):
        """Holds e.g. ctrl during a click; `_release_all` lets go."""
        for symbol in chord(keys) if keys.strip() else ():
            self._press(self._keycode(symbol)[0])
        yield

    def _drag(self, action):
        to_x, to_y = self._point(action["to_x"], action["to_y"])
        if action["x"] is not None:
            self._move(*self._point(action["x"], action["y"]))
        start = self.display.screen().root.query_pointer()
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

    def _keycode(self, symbol):
        """(keycode, needs shift) of a keysym; raises BadAction when the keyboard has no such key."""
        if symbol not in self.map:
            raise BadAction(f"the keyboard has no key for keysym 0x{symbol:x}")
        return self.map[symbol]

    def _chord(self, symbols):
        missing = list(dict.fromkeys(symbol for symbol in symbols if symbol not in self.map))
        with self._borrowed(missing):
            for symbol in symbols:
                code, shifted = self._keycode(symbol)
                if shifted:
                    self._press(self.shift)
                self._press(code)
            self.display.sync()
            time.sleep(0.03)
            self._release_all()

    @contextlib.contextmanager
    def _borrowed(self, symbols):
        """Puts keysyms that the layout lacks on spare keycodes for a while."""
        codes = dict(zip(symbols, self.spare, strict=False))
        for symbol, code in codes.items():
            self.display.change_keyboard_mapping(code, [[symbol, symbol]])
            self.map[symbol] = (code, 0)
        if codes:
            self.display.sync()
            time.sleep(SETTLE_S)
        yield
        if codes:
            self.display.sync()
            time.sleep(SETTLE_S)
        for symbol, code in codes.items():
            self.display.change_keyboard_mapping(code, [[0, 0]])
            del self.map[symbol]
        self.display.sync()

    def _type(self, text):
        symbols = [keysym_of(char) for char in text]
        if self.display.screen().root.query_pointer().mask & X.LockMask:
            self._chord([keysym_named("Caps_Lock")])
        while symbols:
            missing, end = {}, 0
            for end, symbol in enumerate(symbols, 1):
                if symbol not in self.map and symbol not in missing:
                    if len(missing) == len(self.spare):
                        end -= 1
                        break
                    missing[symbol] = True
            with self._borrowed(list(missing)):
                for symbol in symbols[:end]:
                    self._tap(symbol)
            symbols = symbols[end:]

    def _tap(self, symbol):
        code, shifted = self._keycode(symbol)
        if shifted:
            self._press(self.shift)
        self._press(code)
        self._release()
        if shifted:
            self._release()
        self.display.sync()
        time.sleep(0.002)
