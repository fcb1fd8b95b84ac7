"""Names of keys and characters as X keysyms."""

from Xlib import XK

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
TYPED = {"\n": 0xFF0D, "\t": 0xFF09}


class BadAction(Exception):
    """The action can't be done as asked, or not to its end: typing may have begun, and no key stays down."""


def keysym_of(char):
    code = ord(char)
    if char in TYPED:
        return TYPED[char]
    if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code <= 0xDFFF:
        raise BadAction(f"can't type the control character U+{code:04X}")
    return code if code <= 0x7E or 0xA0 <= code <= 0xFF else 0x01000000 + code


def keysyms_of(text):
    """What is pressed to type a text; every line break of it is one Return."""
    return [keysym_of(char) for char in text.replace("\r\n", "\n").replace("\r", "\n")]


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
