"""Families of whole folders, one shell command each: collect, count, pack, measure."""

from __future__ import annotations

from random import Random

from devset.checks.home import sha256
from devset.families import draw
from devset.families.skill import Binding, Family, Post, Slot, check, lines_post, steps


def _collect(rng: Random) -> Binding:
    folder = draw.stem(rng)
    kind, noise = rng.sample(["csv", "log", "md", "txt"], 2)
    wanted, others = draw.stems(rng, 3), draw.stems(rng, 2)
    source = {f"Downloads/{n}.{kind}": draw.text(draw.sentences(rng, 2)) for n in wanted}
    rest = {f"Downloads/{n}.{noise}": draw.text(draw.sentences(rng, 1)) for n in others}
    target = {f"Documents/{folder}/{n}.{kind}": source[f"Downloads/{n}.{kind}"] for n in wanted}
    return Binding(
        slots={"folder": folder, "kind": kind},
        wordings=(
            "Move every .{kind} file from the Downloads folder into Documents/{folder}. Other files "
            "stay where they are.",
            "Please tidy up: all files ending in .{kind} in Downloads belong into the folder "
            "{folder} in Documents. Move them.",
            "Take all .{kind} files out of Downloads and put them into the existing folder Documents/{folder}.",
        ),
        files={**source, **rest, f"Documents/{folder}/readme.md": draw.text(["Files of this project"])},
        writes=(*source, *target),
        pre=(check("folder_exists", path=f"Documents/{folder}"),),
        post=(
            Post(
                "moved",
                "All of them are in the folder.",
                tuple(check("file_is", path=p, sha256_is=sha256(d)) for p, d in target.items()),
            ),
            Post("source_gone", "None is left in Downloads.", tuple(check("absent", path=p) for p in source)),
        ),
        terminal=steps((f"Move the .{kind} files", f"mv ~/Downloads/*.{kind} ~/Documents/{folder}/")),
        mutants={
            "copied": f"cp ~/Downloads/*.{kind} ~/Documents/{folder}/",
            "everything": f"mv ~/Downloads/* ~/Documents/{folder}/",
            "one only": f"mv ~/Downloads/{wanted[0]}.{kind} ~/Documents/{folder}/",
        },
        equivalents={"one by one": f"cd ~/Downloads; for f in *.{kind}; do mv $f ~/Documents/{folder}/$f; done"},
    )


def _count(rng: Random) -> Binding:
    folder, answer = draw.stem(rng), f"{draw.stem(rng)}.txt"
    kind, noise = rng.sample(["csv", "log", "md", "txt"], 2)
    wanted, others = draw.stems(rng, rng.randint(4, 12)), draw.stems(rng, rng.randint(2, 3))
    files = {f"Documents/{folder}/{n}.{kind}": draw.text([n]) for n in wanted}
    files |= {f"Documents/{folder}/{n}.{noise}": draw.text([n]) for n in others}
    here = f"~/Documents/{folder}"
    return Binding(
        slots={"folder": folder, "kind": kind, "answer": answer, "total": len(wanted)},
        wordings=(
            "Count the .{kind} files in the folder Documents/{folder} and write only the number into "
            "{answer} on the Desktop.",
            "How many files ending in .{kind} are in Documents/{folder}? Save just that number as "
            "{answer} on the Desktop.",
            "Please create {answer} on the Desktop. It should hold the number of .{kind} files in Documents/{folder}.",
        ),
        files=files,
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{folder}",),
        post=(
            Post(
                "number",
                "The file holds the right number.",
                (check("number_is", path=f"Desktop/{answer}", expected=len(wanted)),),
            ),
        ),
        terminal=steps((f"Count the .{kind} files into {answer}", f"ls {here}/*.{kind} | wc -l > ~/Desktop/{answer}")),
        mutants={
            "all files": f"ls {here} | wc -l > ~/Desktop/{answer}",
            "wrong place": f"ls {here}/*.{kind} | wc -l > ~/{answer}",
            "the list": f"ls {here}/*.{kind} > ~/Desktop/{answer}",
        },
        equivalents={"with find": f"echo $(find {here} -name '*.{kind}' | wc -l) > ~/Desktop/{answer}"},
    )


def _archive(rng: Random) -> Binding:
    folder, pack = draw.stem(rng), f"{draw.stem(rng)}.tar.gz"
    inside = {f"{folder}/{n}.txt": draw.text(draw.sentences(rng, 2)) for n in draw.stems(rng, 3)}
    members = {name: sha256(data) for name, data in inside.items()}
    return Binding(
        slots={"folder": folder, "pack": pack},
        wordings=(
            "Pack the folder {folder}, which is in Documents, into an archive called {pack} in "
            "Documents. Keep the folder.",
            "Please make a compressed tar archive of Documents/{folder} and save it as {pack} next to the folder.",
            "I want to send the folder Documents/{folder}. Create the archive Documents/{pack} with "
            "the whole folder in it.",
        ),
        files={f"Documents/{name}": data for name, data in inside.items()},
        writes=(f"Documents/{pack}",),
        post=(
            Post(
                "packed",
                "The archive holds the folder's files.",
                (check("archive_holds", path=f"Documents/{pack}", members={**members}),),
            ),
        ),
        terminal=steps((f"Pack {folder} into {pack}", f"tar -C ~/Documents -czf ~/Documents/{pack} {folder}")),
        mutants={
            "without the folder": f"tar -C ~/Documents/{folder} -czf ~/Documents/{pack} .",
            "on the Desktop": f"tar -C ~/Documents -czf ~/Desktop/{pack} {folder}",
            "not an archive": f"cat ~/Documents/{folder}/* > ~/Documents/{pack}",
        },
        equivalents={
            "in python": 'cd ~/Documents && python3 -c "import tarfile; '
            f"tarfile.open('{pack}','w:gz').add('{folder}')\""
        },
    )


def _largest(rng: Random) -> Binding:
    folder, answer = draw.stem(rng), f"{draw.stem(rng)}.txt"
    sizes = rng.sample(range(2, 40), 5)
    names = [f"{n}.log" for n in draw.stems(rng, 5)]
    files = {f"Documents/{folder}/{n}": draw.text(["0123456789"] * size) for n, size in zip(names, sizes, strict=True)}
    largest = names[sizes.index(max(sizes))]
    return Binding(
        slots={"folder": folder, "answer": answer, "largest": largest},
        wordings=(
            "Find the largest file in Documents/{folder} and write its name into the file {answer} on the Desktop.",
            "Which file in the folder Documents/{folder} is the biggest? Save just its name as "
            "{answer} on the Desktop.",
            "Please write the name of the biggest file of Documents/{folder} into a new file {answer} on the Desktop.",
        ),
        files=files,
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{folder}",),
        nonces={largest: ""},
        post=(lines_post("name", "The file holds the right name.", f"Desktop/{answer}", [largest]),),
        terminal=steps(
            (
                f"Write the largest file's name into {answer}",
                f"ls -S ~/Documents/{folder} | head -1 > ~/Desktop/{answer}",
            )
        ),
        mutants={
            "first by name": f"ls -r ~/Documents/{folder} | grep -v '^{largest}' | head -1 > ~/Desktop/{answer}",
            "all names": f"ls -S ~/Documents/{folder} > ~/Desktop/{answer}",
            "smallest": f"ls -Sr ~/Documents/{folder} | head -1 > ~/Desktop/{answer}",
        },
        equivalents={
            "in python": f"cd ~/Documents/{folder} && "
            'python3 -c "import os; print(max(os.listdir(), key=os.path.getsize))"'
            f" > ~/Desktop/{answer}"
        },
    )


NAME, COUNT = Slot("name"), Slot("count", nonce=True)

FAMILIES = (
    Family(
        "files.collect",
        "Move all files of a kind",
        ("files", "files", "move"),
        "files",
        "os",
        ("terminal",),
        {"folder": NAME, "kind": NAME},
        _collect,
    ),
    Family(
        "files.count",
        "Count files of a kind",
        ("files", "folder", "count"),
        "files",
        "os",
        ("terminal",),
        {"folder": NAME, "kind": NAME, "answer": NAME, "total": COUNT},
        _count,
    ),
    Family(
        "files.archive",
        "Pack a folder",
        ("files", "folder", "pack"),
        "files",
        "os",
        ("terminal",),
        {"folder": NAME, "pack": NAME},
        _archive,
        held_out=True,
    ),
    Family(
        "files.largest",
        "Name the largest file",
        ("files", "folder", "measure"),
        "files",
        "os",
        ("terminal",),
        {"folder": NAME, "answer": NAME, "largest": Slot("name", nonce=True)},
        _largest,
        held_out=True,
    ),
)
