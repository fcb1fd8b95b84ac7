"""The keyboard's layout as it is right now, and keycodes that carry, for a while, characters that the layout lacks."""

from keysyms import BadAction
from Xlib import XK

# A range without modifiers and keys that text or menus need: one request changes it, so every client is told once.
FIRST, LAST = 208, 255
SEARCH_KEY = 225  # browsers act on this keycode whatever it is mapped to
MEDIA_KEYS = range(0x1008FF00, 0x10090000)


class Keymap:
    """`keys`: keysym -> (keycode, needs shift). Read anew for every action: the agent may change its layout."""

    def __init__(self, display):
        self.display, self.keys = display, {}
        low, high = display.display.info.min_keycode, display.display.info.max_keycode
        rows = display.get_keyboard_mapping(low, high - low + 1)
        for code, row in enumerate(rows, low):
            for column, symbol in enumerate(row[:2]):
                if symbol:
                    self.keys.setdefault(symbol, (code, column))
        self.rows = [list(row) for row in rows[FIRST - low : LAST + 1 - low]]
        self.free = [
            code for code, row in enumerate(self.rows, FIRST)
            if code != SEARCH_KEY and all(symbol == 0 or symbol in MEDIA_KEYS for symbol in row)
        ]  # fmt: skip
        self.shift = self.keycode(XK.string_to_keysym("Shift_L"))[0]

    def keycode(self, symbol):
        """(keycode, needs shift); raises BadAction when the keyboard has no such key."""
        if symbol not in self.keys:
            raise BadAction(f"the keyboard has no key for keysym 0x{symbol:x}")
        return self.keys[symbol]

    def parts(self, symbols):
        """Cuts what is to be typed into [(symbols, those that the layout lacks)] that fit the free keycodes at once."""
        found, start, lacking = [], 0, {}
        for index, symbol in enumerate(symbols):
            if symbol in self.keys or symbol in lacking:
                continue
            if len(lacking) == 2 * len(self.free):
                found.append((symbols[start:index], list(lacking)))
                start, lacking = index, {}
            lacking[symbol] = True
        return [*found, (symbols[start:], list(lacking))]

    def lend(self, symbols):
        """Puts symbols on the free keycodes: first without shift, the rest with it."""
        rows, plain = [list(row) for row in self.rows], len(self.free)
        for index, symbol in enumerate(symbols):
            code, shifted = self.free[index % plain], index // plain
            self.keys[symbol] = code, shifted
            row = rows[code - FIRST]
            row[:4] = [row[0], symbol] * 2 if shifted else [symbol] * 4
        self.display.change_keyboard_mapping(FIRST, rows)
        self.display.sync()

    def take_back(self, symbols):
        for symbol in symbols:
            del self.keys[symbol]
        self.display.change_keyboard_mapping(FIRST, self.rows)
        self.display.sync()
