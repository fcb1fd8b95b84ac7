"""The accessibility reader: runs as the agent's user, answers each line on stdin with one JSON line of visible elements.

Bounded in time and count: what is deepest and latest is left out first. Sheets (2^30 cells) are read by their visible range.
"""

import json
import sys
import time

sys.path.append("/usr/lib/python3/dist-packages")

import gi  # noqa: E402

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402

BUDGET_S, MOST, DEEPEST, WIDE = 1.1, 600, 30, 200
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
        self.deadline = time.monotonic() + BUDGET_S

    def spent(self):
        return len(self.found) >= MOST or time.monotonic() > self.deadline

    def desktop(self):
        desk = Atspi.get_desktop(0)
        desk.clear_cache_single()
        windows = []
        for index in range(desk.get_child_count()):
            try:
                app = desk.get_child_at_index(index)
                windows += [app.get_child_at_index(i) for i in range(app.get_child_count())]
            except (GLib.Error, AttributeError):
                continue  # an application that has just ended
        active = [w for w in windows if w is not None and self._state(w, State.ACTIVE)]
        for window in active + [w for w in windows if w is not None and w not in active]:
            try:
                self.walk(window, 0, window.get_name() or "")
            except GLib.Error:
                continue
        return self.found

    @staticmethod
    def _state(node, state):
        try:
            return node.get_state_set().contains(state)
        except GLib.Error:
            return False

    def walk(self, node, depth, window):
        if depth > DEEPEST or self.spent():
            return
        states = node.get_state_set()
        if not states.contains(State.SHOWING) or states.contains(State.ICONIFIED):
            return
        role = node.get_role_name()
        box = self.box(node)
        if box:
            self.add(node, role, box, states, depth, window)
        count = node.get_child_count()
        if role in SHEETS and count > WIDE and box:
            self.sheet(node, depth + 1, window, box)
            return
        for index in range(min(count, WIDE)):
            try:
                child = node.get_child_at_index(index)
                if child is not None:
                    self.walk(child, depth + 1, window)
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
        if e.width <= 0 or e.height <= 0 or e.x >= self.width or e.y >= self.height or e.x + e.width <= 0 or e.y + e.height <= 0:
            return None
        return e.x, e.y, e.width, e.height

    def add(self, node, role, box, states, depth, window):
        name, text = node.get_name() or "", self.text(node)
        self.found.append({
            "role": role, "name": name, "x": box[0], "y": box[1], "width": box[2], "height": box[3], "depth": depth,
            "text": "" if text == name else text, "focused": states.contains(State.FOCUSED),
            "actionable": role in ACTIONABLE and states.contains(State.SENSITIVE), "window": window,
        })  # fmt: skip
        return text

    @staticmethod
    def text(node):
        face = node.get_text_iface()
        if face is None:
            return ""
        size = face.get_character_count()
        return face.get_text(0, min(size, TEXT)) if size > 0 else ""

    def sheet(self, node, depth, window, box):
        """The cells of the visible range: those that hold something, and the first column and row that are empty."""
        table, component = node.get_table_iface(), node.get_component_iface()
        first = component.get_accessible_at_point(max(box[0], 0) + 2, max(box[1], 0) + 2, Screen)
        if table is None or first is None:
            return
        index = first.get_index_in_parent()
        top, left = table.get_row_at_index(index), table.get_column_at_index(index)
        right, bottom = min(box[0] + box[2], self.width), min(box[1] + box[3], self.height)
        empty_rows, columns = 0, WIDE
        for row in range(top, top + WIDE):
            used, blank = False, 0
            for column in range(left, left + columns):
                cell = table.get_accessible_at(row, column)
                extent = cell and self.box(cell)
                if not extent or extent[0] >= right or extent[1] >= bottom or self.spent():
                    break
                full = bool(self.add(cell, "table cell", extent, cell.get_state_set(), depth, window))
                used, blank = used or full, 0 if full else blank + 1
                if blank >= 2:
                    break
            else:
                extent = (0, 0, 0, 0)
            empty_rows = 0 if used else empty_rows + 1
            if empty_rows >= 2 or self.spent() or not extent or extent[1] >= bottom:
                return


def main():
    width, height = (int(n) for n in sys.argv[1].split("x"))
    Atspi.set_timeout(800, 1500)
    for _ in sys.stdin:
        try:
            found = Walk(width, height).desktop()
        except GLib.Error:
            found = []
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
