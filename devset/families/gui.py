"""The few GUI moves that the families' oracles are made of (targets are found by accessible name on the live screen).

Names relied on: a desktop icon is named like its file (role `icon`). What else a family relies
on stands in its `gui_names`. Keys follow a click or a double click on a real target.
"""

from __future__ import annotations

from devset.task import GuiStep, GuiTarget


def icon(name: str) -> GuiTarget:
    """The icon of `~/Desktop/<name>` on the pcmanfm desktop."""
    return GuiTarget(name=name)


def click(target: GuiTarget, summary: str | None = None, *, window: str | None = None) -> GuiStep:
    return GuiStep(action="left_click", target=target, summary=summary, wait_window=window)


def double_click(target: GuiTarget, summary: str | None = None, *, window: str | None = None) -> GuiStep:
    return GuiStep(action="double_click", target=target, summary=summary, wait_window=window)


def drag(target: GuiTarget, to: GuiTarget, summary: str | None = None) -> GuiStep:
    return GuiStep(action="left_click_drag", target=target, to=to, summary=summary)


def key(keys: str, summary: str | None = None, *, window: str | None = None) -> GuiStep:
    return GuiStep(action="key", keys=keys, summary=summary, wait_window=window)


def write(text: str, summary: str | None = None, *, window: str | None = None) -> GuiStep:
    """Types `text`; a newline in it is the Return key."""
    return GuiStep(action="type", text=text, summary=summary, wait_window=window)


def wait(seconds: float, summary: str | None = None) -> GuiStep:
    return GuiStep(action="wait", seconds=seconds, summary=summary)


def append(name: str, text: str) -> tuple[GuiStep, ...]:
    """Opens a text file from its icon in mousepad, types a last line and saves.

    The click waits for the text area, the only element of role `text` (it has no name), which may show late.
    """
    return (
        double_click(icon(name), f"Open {name} in the text editor"),
        click(TEXT_AREA, "Type the line at the end and save", window=name),
        key("ctrl+End"),
        write(text + "\n"),
        key("ctrl+s"),
    )


TEXT_AREA = GuiTarget(name="", role="text")
# LibreOffice writes the file a moment after the screen has settled.
SAVE_OFFICE = (key("ctrl+s"), wait(2.0))
