"""Families of files and folders: one shell command each, and the desktop's icons for the first four."""

from __future__ import annotations

from random import Random

from devset.checks.home import sha256
from devset.families import draw, gui
from devset.families.skill import Binding, Family, Post, Slot, check, steps
from devset.task import GuiTarget


def _rename(rng: Random) -> Binding:
    (old, other), new = draw.stems(rng, 2), draw.stem(rng) + "-" + draw.code(rng)[:2].lower()
    old, new = f"{old}.txt", f"{new}.txt"
    note = draw.text(draw.sentences(rng, 2))
    return Binding(
        slots={"old": old, "new": new},
        wordings=(
            "Rename the file {old} on the Desktop to {new} and leave everything else as it is.",
            "There is a file called {old} on the Desktop. Please give it the new name {new}.",
            "The name of {old} on my Desktop is wrong: it should be called {new}. Rename it, please.",
        ),
        files={f"Desktop/{old}": note, f"Desktop/{other}.txt": draw.text(draw.sentences(rng, 2))},
        writes=(f"Desktop/{old}", f"Desktop/{new}"),
        pre=(check("file_is", path=f"Desktop/{old}", sha256_is=sha256(note)), check("absent", path=f"Desktop/{new}")),
        post=(
            Post(
                "renamed",
                f"{new} holds what {old} held.",
                (check("file_is", path=f"Desktop/{new}", sha256_is=sha256(note)),),
            ),
            Post("old_gone", f"{old} no longer exists.", (check("absent", path=f"Desktop/{old}"),)),
        ),
        terminal=steps((f"Rename {old} to {new}", f"mv ~/Desktop/{old} ~/Desktop/{new}")),
        gui=(
            gui.click(gui.icon(old), f"Select {old} and press F2 to rename it"),
            gui.key("F2"),
            gui.key("ctrl+a", f"Type the new name {new}", window="Rename File"),
            gui.write(f"{new}\n"),
        ),
        mutants={
            "copied instead": f"cp ~/Desktop/{old} ~/Desktop/{new}",
            "wrong file": f"mv ~/Desktop/{other}.txt ~/Desktop/{new}",
            "empty file": f"rm ~/Desktop/{old}; touch ~/Desktop/{new}",
        },
        equivalents={"copy and delete": f"cd ~/Desktop && cat {old} > {new} && rm {old}"},
    )


def _new_folder(rng: Random) -> Binding:
    name, other = draw.stems(rng, 2)
    kind = rng.choice(["csv", "md", "log"])
    return Binding(
        slots={"kind": kind, "name": name},
        wordings=(
            "Create a new folder on the Desktop and give it the name of the .{kind} file there, without the ending.",
            "I need an empty folder on the Desktop, called like the .{kind} file that lies there but without .{kind}.",
            "Please make a folder on my Desktop. Its name is that of the .{kind} file beside it, without the ending.",
        ),
        files={
            f"Desktop/{name}.{kind}": draw.text(draw.sentences(rng, 2)),
            f"Desktop/{other}.txt": draw.text(draw.sentences(rng, 2)),
        },
        writes=(f"Desktop/{name}",),
        nonces={name: f"Desktop/{name}.{kind}"},
        pre=(check("absent", path=f"Desktop/{name}"),),
        post=(
            Post(
                "folder",
                f"An empty folder {name} exists.",
                (check("folder_lists", path=f"Desktop/{name}", expected=[]),),
            ),
        ),
        terminal=steps(
            (f"Create a folder named like the .{kind} file", f"cd ~/Desktop && mkdir $(basename *.{kind} .{kind})")
        ),
        gui=(
            gui.click(gui.icon(f"{name}.{kind}"), "Ask the desktop for a new folder"),
            gui.key("ctrl+shift+n"),
            gui.key("ctrl+a", f"Type the name {name}", window="Creating New Folder"),
            gui.write(f"{name}\n"),
        ),
        mutants={
            "in the home": f"mkdir ~/{name}",
            "a file": f"touch ~/Desktop/{name}",
            "like the other file": f"mkdir ~/Desktop/{other}",
            "with the ending": f"cd ~/Desktop && mkdir {name}.{kind}-folder",
            "the file inside": f"cd ~/Desktop && mkdir {name} && mv {name}.{kind} {name}/",
        },
        equivalents={"with parents": f"mkdir -p ~/Desktop/{name}"},
    )


def _move(rng: Random) -> Binding:
    name, other, folder = draw.stems(rng, 3)
    note = draw.text(draw.sentences(rng, 3))
    return Binding(
        slots={"name": f"{name}.txt", "folder": folder},
        wordings=(
            "Move the file {name} from the Desktop into the folder {folder}, which is on the Desktop too.",
            "Please put {name} into the {folder} folder on the Desktop, so that it no longer lies beside it.",
            "On the Desktop there is a folder {folder}. Move {name} into it and leave the other files alone.",
        ),
        files={
            f"Desktop/{name}.txt": note,
            f"Desktop/{other}.txt": draw.text(draw.sentences(rng, 2)),
            f"Desktop/{folder}/readme.txt": draw.text(draw.sentences(rng, 1)),
        },
        writes=(f"Desktop/{name}.txt", f"Desktop/{folder}/{name}.txt"),
        pre=(check("absent", path=f"Desktop/{folder}/{name}.txt"),),
        post=(
            Post(
                "moved",
                "The file is in the folder.",
                (check("file_is", path=f"Desktop/{folder}/{name}.txt", sha256_is=sha256(note)),),
            ),
            Post("source_gone", "It no longer lies on the Desktop.", (check("absent", path=f"Desktop/{name}.txt"),)),
        ),
        terminal=steps((f"Move {name}.txt into {folder}", f"mv ~/Desktop/{name}.txt ~/Desktop/{folder}/")),
        gui=(gui.drag(gui.icon(f"{name}.txt"), gui.icon(folder), f"Drag {name}.txt onto the folder {folder}"),),
        mutants={
            "copied": f"cp ~/Desktop/{name}.txt ~/Desktop/{folder}/",
            "other file": f"mv ~/Desktop/{other}.txt ~/Desktop/{folder}/",
            "everything": f"mv ~/Desktop/*.txt ~/Desktop/{folder}/",
        },
        equivalents={"copy and delete": f"cd ~/Desktop && cp {name}.txt {folder}/{name}.txt && rm {name}.txt"},
    )


def _delete(rng: Random) -> Binding:
    name, keep, third = (f"{s}.txt" for s in draw.stems(rng, 3))
    files = {f"Desktop/{n}": draw.text(draw.sentences(rng, 2)) for n in (name, keep, third)}
    return Binding(
        slots={"name": name, "keep": keep},
        wordings=(
            "Delete the file {name} from the Desktop. Keep {keep} and everything else.",
            "I no longer need {name} on my Desktop, please delete it. But {keep} has to stay where it is.",
            "Remove {name} from the Desktop, and do not touch {keep} or any other file.",
        ),
        files=files,
        writes=(f"Desktop/{name}",),
        pre=tuple(check("file_is", path=p, sha256_is=sha256(data)) for p, data in files.items()),
        post=(Post("deleted", f"{name} is not on the Desktop.", (check("absent", path=f"Desktop/{name}"),)),),
        terminal=steps((f"Delete {name}", f"rm ~/Desktop/{name}")),
        gui=(
            gui.click(gui.icon(name), f"Select {name} and press Delete"),
            gui.key("Delete"),
            gui.click(GuiTarget(name="Yes", role="push button"), "Confirm the deletion", window="Confirm"),
        ),
        mutants={
            "wrong file": f"rm ~/Desktop/{keep}",
            "all files": "rm ~/Desktop/*.txt",
            "emptied": f": > ~/Desktop/{name}",
        },
        equivalents={
            "into the trash": f"mkdir -p ~/.local/share/Trash/files && mv ~/Desktop/{name} ~/.local/share/Trash/files/"
        },
    )


def _copy(rng: Random) -> Binding:
    name, other = draw.stems(rng, 2)
    copy = f"{name}-{draw.code(rng)[:2].lower()}.txt"
    note = draw.text(draw.sentences(rng, 3))
    return Binding(
        slots={"name": f"{name}.txt", "copy": copy},
        wordings=(
            "Make a copy of the file {name} on the Desktop and call the copy {copy}. The original stays.",
            "Please duplicate {name}, which is on the Desktop, under the name {copy} in the same place.",
            "I want a backup of {name} on the Desktop: copy it to {copy} there, without changing the original.",
        ),
        files={f"Desktop/{name}.txt": note, f"Desktop/{other}.txt": draw.text(draw.sentences(rng, 2))},
        writes=(f"Desktop/{copy}",),
        pre=(check("absent", path=f"Desktop/{copy}"),),
        post=(
            Post(
                "copied",
                "The copy has the same content.",
                (check("file_is", path=f"Desktop/{copy}", sha256_is=sha256(note)),),
            ),
        ),
        terminal=steps((f"Copy {name}.txt to {copy}", f"cp ~/Desktop/{name}.txt ~/Desktop/{copy}")),
        mutants={
            "moved": f"mv ~/Desktop/{name}.txt ~/Desktop/{copy}",
            "other file": f"cp ~/Desktop/{other}.txt ~/Desktop/{copy}",
            "a link": f"ln -s {name}.txt ~/Desktop/{copy}",
        },
        equivalents={"with cat": f"cat ~/Desktop/{name}.txt > ~/Desktop/{copy}"},
    )


_ICONS = ("the file's name (desktop icon)",)
_CONFIRM = (*_ICONS, "`Yes`, role `push button` (pcmanfm's question)")
NAME = Slot("name")

FAMILIES = (
    Family(
        "files.rename",
        "Rename a file",
        ("files", "file", "rename"),
        "files",
        "os",
        ("pcmanfm",),
        {"old": NAME, "new": NAME},
        _rename,
        gui_names=_ICONS,
    ),
    Family(
        "files.new-folder",
        "Create a folder named like a file",
        ("files", "folder", "create"),
        "files",
        "os",
        ("pcmanfm",),
        {"kind": Slot("text"), "name": Slot("name", nonce=True)},
        _new_folder,
        gui_names=_ICONS,
    ),
    Family(
        "files.move",
        "Move a file into a folder",
        ("files", "file", "move"),
        "files",
        "os",
        ("pcmanfm",),
        {"name": NAME, "folder": NAME},
        _move,
        gui_names=_ICONS,
    ),
    Family(
        "files.delete",
        "Delete a file",
        ("files", "file", "delete"),
        "files",
        "daily",
        ("pcmanfm",),
        {"name": NAME, "keep": NAME},
        _delete,
        gui_names=_CONFIRM,
    ),
    Family(
        "files.copy",
        "Copy a file",
        ("files", "file", "copy"),
        "files",
        "os",
        ("terminal",),
        {"name": NAME, "copy": NAME},
        _copy,
    ),
)
