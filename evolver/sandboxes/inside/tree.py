"""The accessibility reader: runs as the agent's user, answers a line of window titles with a line of elements.

Bounded in time and count: what comes latest is left out. Sheets (2^30 cells) are read by their visible range.
"""

import contextlib
import json
import sys
import time

sys.path.append("/usr/lib/python3/dist-packages")

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402

# Calc takes 0.3 s on a free machine; the rest is patience with a crowded one.
BUDGET_S, PATIENCE_S, MOST, DEEPEST, WIDE = 3.0, 9.0, 600, 30, 200
TEXT = 200
State, Screen = Atspi.StateType, Atspi.CoordType.SCREEN
ACTIONABLE = {
    "push button", "toggle button", "check box", "radio button", "menu", "menu item", "check menu item",
    "radio menu item", "entry", "text", "password text", "combo box", "list item", "icon", "page tab", "spin button",
    "slider", "link", "table cell", "tree item", "paragraph", "push button menu", "button", "document text",
}  # fmt: skip
SHEETS = {"table", "tree table", "document spreadsheet"}


class Walk:
    def __init__(self, width, height):
        self.width, self.height, self.found = width, height, []
        self.deadline = 0.0

    def spent(self):
        return len(self.found) >= MOST or time.monotonic() > self.deadline

    def desktop(self, stacking):
        """`stacking`: window titles, topmost first. What a window that fills the screen hides is left out."""
        desk = Atspi.get_desktop(0)
        desk.clear_cache()
        windows = []
        for index in range(desk.get_child_count()):
            try:
                app = desk.get_child_at_index(index)
                for number in range(app.get_child_count()):
                    window = app.get_child_at_index(number)
                    windows.append((self._order(window.get_name() or "", stacking), len(windows), window))
            except (GLib.Error, AttributeError):
                continue  # an application that has just ended
        self.deadline = time.monotonic() + BUDGET_S  # an application that is still starting may have kept us until here
        for _, _, window in sorted(windows):
            try:
                self.walk(window, 0, window.get_name() or "")
                box = self.box(window)
                if box and box[2] * box[3] >= 0.95 * self.width * self.height and self.found:
                    break
            except GLib.Error:
                continue
        return self.found

    @staticmethod
    def _order(name, stacking):
        if name == "Desktop":
            return len(stacking)
        return stacking.index(name) if name in stacking else -1  # menus and tooltips have no title and lie on top

    def walk(self, node, depth, window, parent=None, shift=(0, 0)):
        """`parent` is the parent's raw box. `shift` corrects LibreOffice, which counts its own widgets from below the
        menu bar as if there were none; native widgets inside of those are right again."""
        if depth > DEEPEST or self.spent():
            return
        states = node.get_state_set()
        role = node.get_role_name()
        if role == "unknown" and window == "Desktop" and states.contains(State.VISIBLE):
            role = "icon"  # the file manager draws these itself and never says that they show
        elif not states.contains(State.SHOWING) or states.contains(State.ICONIFIED):
            return
        raw, within = self.box(node), shift
        if raw and parent:
            if role == "root pane":
                shift = (parent[0] - raw[0], parent[1] - raw[1])
            elif shift != (0, 0) and (raw[0], raw[1]) == (parent[0] + shift[0], parent[1] + shift[1]):
                shift = (0, 0)
            # The text of a document is LibreOffice's own again.
            within = within if role == "document text" else shift
            if role == "menu bar" and shift != (0, 0):
                return  # a shadow of the native menu bar
        if raw:
            self.add(node, role, _shifted(raw, shift), states, depth, window)
        count = node.get_child_count()
        if role in SHEETS and count > WIDE and raw:
            self.sheet(node, depth + 1, window, raw, shift)
            return
        for index in range(min(count, WIDE)):
            try:
                child = node.get_child_at_index(index)
                if child is not None:
                    self.walk(child, depth + 1, window, raw, within)
            except GLib.Error:
                continue  # it vanished while we were reading
            if self.spent():
                return

    def box(self, node):
        """(x, y, width, height) if any of it is on the screen."""
        component = node.get_component_iface()
        if component is None:
            return None
        e = component.get_extents(Screen)
        if (
            e.width <= 0
            or e.height <= 0
            or e.x >= self.width
            or e.y >= self.height
            or e.x + e.width <= 0
            or e.y + e.height <= 0
        ):
            return None
        return e.x, e.y, e.width, e.height

    def add(self, node, role, box, states, depth, window):
        name, text = node.get_name() or "", self.text(node)
        self.found.append({
            "role": role, "name": name, "x": box[0], "y": box[1], "width": box[2], "height": box[3], "depth": depth,
            "text": "" if text == name else text, "focused": states.contains(State.FOCUSED),
            "actionable": role in ACTIONABLE and (states.contains(State.SENSITIVE) or states.contains(State.ENABLED)),
            "window": window,
        })  # fmt: skip
        return text

    @staticmethod
    def text(node):
        face = node.get_text_iface()
        if face is None:
            return ""
        size = face.get_character_count()
        return face.get_text(0, min(size, TEXT)) if size > 0 else ""

    def sheet(self, node, depth, window, box, shift):
        """Cells of the visible range, row by row: those that hold something, and two empty ones after them."""
        table, component = node.get_table_iface(), node.get_component_iface()
        first = component.get_accessible_at_point(max(box[0], 0) + 2, max(box[1], 0) + 2, Screen)
        if table is None or first is None:
            return
        index = first.get_index_in_parent()
        top, left = table.get_row_at_index(index), table.get_column_at_index(index)
        right, bottom = min(box[0] + box[2], self.width), min(box[1] + box[3], self.height)
        empty_rows, row = 0, top
        while empty_rows < 2 and not self.spent():
            empty_cells, column = 0, left
            while empty_cells < 2 and not self.spent():
                cell = table.get_accessible_at(row, column)
                raw = cell and self.box(cell)
                if not raw or raw[1] >= bottom:
                    return
                if raw[0] >= right:
                    break
                text = self.add(cell, "table cell", _shifted(raw, shift), cell.get_state_set(), depth, window)
                empty_cells, column = 0 if text else empty_cells + 1, column + 1
            empty_rows, row = empty_rows + 1 if column - left == 2 and empty_cells == 2 else 0, row + 1


def _shifted(box, shift):
    return box[0] + shift[0], box[1] + shift[1], box[2], box[3]


def main():
    width, height = (int(n) for n in sys.argv[1].split("x"))
    Atspi.set_timeout(3000, 6000)
    for line in sys.stdin:
        found, until = [], time.monotonic() + PATIENCE_S
        while not found and time.monotonic() < until:  # an application that is busy starting does not answer yet
            with contextlib.suppress(GLib.Error):
                found = Walk(width, height).desktop(json.loads(line))
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
