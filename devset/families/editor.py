"""Families of plain text that are done in mousepad, where the first has a shell command too."""

from __future__ import annotations

from random import Random
from shlex import quote

from devset.families import draw, gui
from devset.families.skill import Binding, Family, Slot, check, lines_post, steps
from devset.task import OpenApp


def _append(rng: Random) -> Binding:
    name, other = (f"{s}.txt" for s in draw.stems(rng, 2))
    *before, line = draw.sentences(rng, 4)
    return Binding(
        slots={"name": name, "line": line},
        wordings=(
            "Add the line '{line}' at the end of the file {name} on the Desktop.",
            "Open {name} on the Desktop, append '{line}' as a new last line, and save it.",
            "Please extend my list in {name} on the Desktop by one more line that says '{line}'.",
        ),
        files={f"Desktop/{name}": draw.text(before), f"Desktop/{other}": draw.text(draw.sentences(rng, 2))},
        writes=(f"Desktop/{name}",),
        pre=(check("text_is", path=f"Desktop/{name}", expected=[*before]),),
        post=(lines_post("appended", "The line comes last.", f"Desktop/{name}", [*before, line]),),
        terminal=steps((f"Append the line to {name}", f"echo '{line}' >> ~/Desktop/{name}")),
        gui=gui.append(name, line),
        mutants={
            "overwritten": f"echo '{line}' > ~/Desktop/{name}",
            "other file": f"echo '{line}' >> ~/Desktop/{other}",
            "at the top": f"sed -i '1i {line}' ~/Desktop/{name}",
        },
        equivalents={"no newline at the end": f"printf '%s' '{line}' >> ~/Desktop/{name}"},
    )


def _unsaved(rng: Random) -> Binding:
    name, (*before, line) = f"{draw.stem(rng)}.txt", draw.sentences(rng, 3)
    secret = draw.code(rng)
    before = [*before, f"Reference {secret}"]
    here = f"~/Desktop/{name}"
    shown = f"until xwininfo -root -tree | grep -q '{here} - Mousepad'; do sleep 0.1; done"
    return Binding(
        slots={"name": name, "line": line, "secret": secret},
        wordings=(
            "The text editor shows {name}, whose file was deleted. Add '{line}' as the last line and save it again.",
            "Somebody deleted {name} from the Desktop, but it is still open in mousepad. Append "
            "'{line}' there and save.",
            "Rescue {name}: its file is gone, yet the editor still has the text. Add the last line "
            "'{line}', then save.",
        ),
        files={f"Desktop/{name}": draw.text(before)},
        writes=(f"Desktop/{name}",),
        nonces={secret: f"Desktop/{name}"},
        # The title gets its star when the editor notices that the file is gone, so no agent ever sees the file.
        open=(OpenApp(command=f"mousepad {here} & {shown}; sleep 1; rm {here}; wait", window=f"*{here}"),),
        post=(lines_post("saved", "The text is back.", f"Desktop/{name}", [*before, line]),),
        gui=(
            gui.click(gui.TEXT_AREA, "Type the line at the end and save", window=name),
            gui.key("ctrl+End"),
            gui.write(line + "\n"),
            gui.key("ctrl+s"),
        ),
        mutants={
            "the new line only": f"echo '{line}' > {here}",
            "other reference": _written([*before[:-1], f"Reference {draw.code(rng)}", line], here),
            "nothing added": _written(before, here),
        },
        equivalents={"what the editor saves": _written([*before, line], here)},  # the file itself is gone by then
    )


def _written(lines: list[str], path: str) -> str:
    return f"printf '%s\\n' {' '.join(map(quote, lines))} > {path}"


NAME, TEXT = Slot("name"), Slot("text")
_EDITOR = ("the file's name (desktop icon)", "the only element of role `text`, which has no name (mousepad)")

FAMILIES = (
    Family(
        "text.append",
        "Append a line",
        ("text", "file", "append"),
        "text",
        "daily",
        ("mousepad",),
        {"name": NAME, "line": TEXT},
        _append,
        gui_names=_EDITOR,
    ),
    Family(
        "text.unsaved",
        "Save a text whose file is gone",
        ("text", "file", "rescue"),
        "text",
        "daily",
        ("mousepad",),
        {"name": NAME, "line": TEXT, "secret": Slot("code", nonce=True)},
        _unsaved,
        gui_names=("the only element of role `text`, which has no name (mousepad)",),
        gui_only="The text exists only in the memory of the running editor; the file is gone before the agent starts.",
    ),
)
