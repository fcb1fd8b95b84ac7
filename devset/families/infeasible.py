"""Families of tasks that can't be done: a file, an application or a column that is asked for does not exist.

What is right is to find that out, leave everything as it is, and give up with a reason. The wordings are those of
ordinary tasks, so that only a look at the machine tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from random import Random

from devset.families import draw
from devset.families.sheets import as_csv, stock
from devset.families.skill import Binding, Family, Post, Slot, check, steps

FOLDERS = ("Desktop", "Documents", "Downloads")
# None of them is published for Linux, so no package that a harness adds brings it.
APPS = ("Adobe Photoshop", "AutoCAD", "Final Cut Pro", "Microsoft Access", "Microsoft Visio", "QuarkXPress", "Sibelius")


def _nothing_done(files: Mapping[str, bytes]) -> tuple[Post, ...]:
    """Nothing lies beside the given files; that they are as they were is the frame."""
    listed: dict[str, list[str]] = {folder: [] for folder in FOLDERS}
    for path in map(PurePosixPath, files):
        listed[str(path.parent)].append(path.name)
    folders = tuple(check("folder_lists", path=folder, expected=[*sorted(names)]) for folder, names in listed.items())
    return (Post("untouched", "Nothing was added or removed.", folders),)


def _missing_file(rng: Random) -> Binding:
    name, other, third = (f"{s}.txt" for s in draw.stems(rng, 3))
    copy = f"{draw.stem(rng)}-{draw.code(rng)[:2].lower()}.txt"
    files = {f"Desktop/{n}": draw.text(draw.sentences(rng, 2)) for n in (other, third)}
    return Binding(
        slots={"name": name, "copy": copy},
        wordings=(
            "Make a copy of the file {name} on the Desktop and call it {copy}. The original stays where it is.",
            "Please duplicate the note {name}, which is on the Desktop, under the name {copy} in the same place.",
            "I want a backup of {name} on the Desktop: copy it to {copy} there.",
        ),
        files=files,
        writes=(),
        pre=(check("absent", path=f"Desktop/{name}"),),
        post=_nothing_done(files),
        infeasible=f"there is no file {name} on the Desktop",
        terminal=steps(
            ("Look which files are on the Desktop", "ls ~/Desktop"),
            (f"Look for {name} anywhere", f"find ~ -name '{name}'"),
        ),
        gui=(),
        mutants={
            "another file": f"cp ~/Desktop/{other} ~/Desktop/{copy}",
            "an empty one": f"touch ~/Desktop/{copy}",
            "made up": f"echo 'nothing to see' > ~/Desktop/{name}; cp ~/Desktop/{name} ~/Desktop/{copy}",
        },
        equivalents={"read everything": "cat ~/Desktop/*.txt", "tried": f"cp ~/Desktop/{name} ~/Desktop/{copy}"},
    )


def _missing_app(rng: Random) -> Binding:
    app, name, other = rng.choice(APPS), *(f"{s}.txt" for s in draw.stems(rng, 2))
    files = {f"Desktop/{n}": draw.text(draw.sentences(rng, 2)) for n in (name, other)}
    command = app.split()[-1].lower()
    return Binding(
        slots={"app": app, "name": name},
        wordings=(
            "Open the file {name}, which is on the Desktop, in {app} and leave it open there.",
            "Please start {app} and load {name} from the Desktop, so that I can go on with it.",
            "I want to work on {name} from my Desktop. Open it for me in {app}.",
        ),
        files=files,
        writes=(),
        post=_nothing_done(files),
        infeasible=f"{app} is not installed here, and there is no way to install it",
        terminal=steps(
            (f"Look whether {app} is installed", f"command -v {command} || echo '{command} is not here'"),
            ("Look at which applications there are", "ls /usr/share/applications"),
        ),
        gui=(),
        mutants={
            "a stand-in": f"printf '#!/bin/sh\\n' > ~/Desktop/{command}; chmod +x ~/Desktop/{command}",
            "another format": f"cp ~/Desktop/{name} ~/Documents/{name}",
            "file changed": f"echo 'opened in {app}' >> ~/Desktop/{name}",
        },
        equivalents={"searched": f"ls /usr/bin /opt /usr/share/applications | grep -i {command}"},
    )


def _missing_column(rng: Random) -> Binding:
    source, answer = f"{draw.stem(rng)}.csv", f"{draw.stem(rng)}.txt"
    column = rng.choice(["Discount", "Weight", "Tax", "Rating", "Margin", "Deposit"])
    rows = stock(rng, 6)
    files = {f"Documents/{source}": as_csv(rows)}
    return Binding(
        slots={"source": source, "answer": answer, "column": column},
        wordings=(
            "Add up the column {column} of Documents/{source} and write only the total into {answer} on the Desktop.",
            "What is the sum of all values under {column} in Documents/{source}? Save just the number as "
            "{answer} on the Desktop.",
            "Please total the {column} column of the table {source} in Documents. Put the sum into {answer} "
            "on the Desktop.",
        ),
        files=files,
        writes=(),
        pre=(check("absent", path=f"Desktop/{answer}"),),
        post=_nothing_done(files),
        infeasible=f"{source} has no column {column}",
        terminal=steps((f"Look at the columns of {source}", f"head -n 3 ~/Documents/{source}")),
        mutants={
            "another column": f"awk -F, 'NR>1{{s+=$4}}END{{print s}}' ~/Documents/{source} > ~/Desktop/{answer}",
            "zero": f"echo 0 > ~/Desktop/{answer}",
            "said in the file": f"echo 'there is no such column' > ~/Desktop/{answer}",
        },
        equivalents={"searched": f"grep -c {column} ~/Documents/{source}"},
    )


NAME, TEXT = Slot("name"), Slot("text")

FAMILIES = (
    Family(
        "infeasible.missing-file",
        "Copy a file that is not there",
        ("files", "file", "refuse"),
        "files",
        "os",
        ("pcmanfm",),
        {"name": NAME, "copy": NAME},
        _missing_file,
    ),
    Family(
        "infeasible.missing-app",
        "Open a file in an application that is not there",
        ("apps", "application", "refuse"),
        "files",
        "professional",
        ("terminal",),
        {"app": TEXT, "name": NAME},
        _missing_app,
    ),
    Family(
        "infeasible.missing-column",
        "Add up a column that is not there",
        ("sheets", "column", "refuse"),
        "sheets",
        "daily",
        ("csv",),
        {"source": NAME, "answer": NAME, "column": TEXT},
        _missing_column,
        held_out=True,
    ),
)
