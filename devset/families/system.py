"""Families of the machine itself: modes, links, archives, the shell's profile, a script that no longer runs."""

from __future__ import annotations

import io
import tarfile
from random import Random

from devset.checks.home import sha256
from devset.families import draw
from devset.families.skill import Binding, Family, Group, Post, Slot, check, lines_post, steps
from devset.task import Category


def _executable(rng: Random) -> Binding:
    folder, *names = draw.stems(rng, 4)
    name, other, third = (f"{n}.sh" for n in names)
    files = {
        f"Documents/{folder}/{n}": draw.text(["#!/bin/bash", f"echo '{draw.sentence(rng)}'"])
        for n in (name, other, third)
    }
    path, here = f"Documents/{folder}/{name}", f"~/Documents/{folder}"
    return Binding(
        slots={"folder": folder, "name": name},
        wordings=(
            "Make the script {name} in Documents/{folder} executable for its owner, without changing what is in it.",
            "I can't run Documents/{folder}/{name}: permission denied. Please give me the right to execute this one "
            "script.",
            "The file {name} in the folder Documents/{folder} lacks the execute permission. Add it for the owner and "
            "leave the other scripts alone.",
        ),
        files=files,
        writes=(path,),
        pre=(check("permissions", path=path, needed="0", forbidden="100"),),
        post=(
            Post("executable", "The owner may run it.", (check("permissions", path=path, needed="700"),)),
            Post("kept", "It says what it said.", (check("file_is", path=path, sha256_is=sha256(files[path])),)),
            Post(
                "others",
                "The other scripts are as they were.",
                tuple(
                    check("permissions", path=f"Documents/{folder}/{n}", needed="600", forbidden="100")
                    for n in (other, third)
                ),
            ),
        ),
        terminal=steps((f"Make {name} executable", f"chmod u+x {here}/{name}")),
        mutants={
            "another script": f"chmod u+x {here}/{other}",
            "all scripts": f"chmod +x {here}/*.sh",
            "a copy": f"install -m 755 {here}/{name} ~/Desktop/{name}",
            "for others only": f"chmod g+x,o+x {here}/{name}",
        },
        equivalents={"for everybody": f"chmod a+x {here}/{name}", "in numbers": f"chmod 700 {here}/{name}"},
    )


def _link(rng: Random) -> Binding:
    folder, link = draw.stem(rng), rng.choice(["current", "latest", "live", "stable"])
    old, new = sorted(f"v{rng.randint(1, 9)}.{n}" for n in rng.sample(range(10, 60), 2))
    wanted = rng.choice([old, new])
    here = f"~/Documents/{folder}"
    return Binding(
        slots={"folder": folder, "link": link, "wanted": wanted},
        wordings=(
            "In Documents/{folder}, create a relative symbolic link called {link} that points to the folder {wanted} "
            "beside it.",
            "Please make {link} in Documents/{folder} a symbolic link to {wanted} in the same folder, with a relative "
            "target.",
            "The programs expect Documents/{folder}/{link}. Add it as a symlink whose target is just {wanted}, the "
            "folder next to it.",
        ),
        files={f"Documents/{folder}/{version}/readme.md": draw.text([f"Version {version}"]) for version in (old, new)},
        writes=(f"Documents/{folder}/{link}",),
        pre=(
            check("absent", path=f"Documents/{folder}/{link}"),
            check("folder_exists", path=f"Documents/{folder}/{wanted}"),
        ),
        post=(
            Post(
                "link",
                f"The link points to {wanted}.",
                (check("link_is", path=f"Documents/{folder}/{link}", target=wanted),),
            ),
        ),
        terminal=steps((f"Link {link} to {wanted}", f"ln -s {wanted} {here}/{link}")),
        mutants={
            "the other version": f"ln -s {new if wanted == old else old} {here}/{link}",
            "a copy": f"cp -r {here}/{wanted} {here}/{link}",
            "leads nowhere": f"ln -s {folder}/{wanted} {here}/{link}",
            "a text": f"echo {wanted} > {here}/{link}",
        },
        equivalents={"from inside": f"cd {here} && ln -s ./{wanted}/ {link}"},
    )


def packed(files: dict[str, bytes]) -> bytes:
    """A tar archive, not compressed, whose bytes follow from the names and contents alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _unpack(rng: Random) -> Binding:
    folder, pack, *names = draw.stems(rng, 5)
    pack = f"{pack}.tar"
    inside = {f"{n}.txt": draw.text(draw.sentences(rng, 2)) for n in names}
    here = f"~/Documents/{folder}"
    return Binding(
        slots={"folder": folder, "pack": pack},
        wordings=(
            "Unpack the archive {pack} from Downloads into the folder Documents/{folder}, so that its files lie "
            "directly there.",
            "Please extract all files of Downloads/{pack} into Documents/{folder}. The archive itself stays in "
            "Downloads.",
            "I was sent {pack}, which is in Downloads. Put everything that it contains into the existing folder "
            "Documents/{folder}.",
        ),
        files={f"Downloads/{pack}": packed(inside), f"Documents/{folder}/readme.md": draw.text(["Files sent to us"])},
        writes=tuple(f"Documents/{folder}/{n}" for n in inside),
        reads=(f"Downloads/{pack}",),
        pre=tuple(check("absent", path=f"Documents/{folder}/{n}") for n in inside),
        post=(
            Post(
                "unpacked",
                "Every file of the archive is in the folder.",
                tuple(
                    check("file_is", path=f"Documents/{folder}/{n}", sha256_is=sha256(data))
                    for n, data in inside.items()
                ),
            ),
        ),
        terminal=steps((f"Unpack {pack} into {folder}", f"tar -C {here} -xf ~/Downloads/{pack}")),
        mutants={
            "in Downloads": f"tar -C ~/Downloads -xf ~/Downloads/{pack}",
            "one file only": f"tar -C {here} -xf ~/Downloads/{pack} {names[0]}.txt",
            "one folder too deep": f"mkdir {here}/new && tar -C {here}/new -xf ~/Downloads/{pack}",
            "moved": f"mv ~/Downloads/{pack} {here}/",
        },
        equivalents={"in python": f"cd {here} && python3 -m tarfile -e ~/Downloads/{pack} ."},
    )


def _variable(rng: Random) -> Binding:
    name, other, third = (s.replace("-", "_").upper() for s in draw.stems(rng, 3))
    kept, value, last = draw.stems(rng, 3)
    before = ['PATH="$HOME/bin:$PATH"', f"export {other}={kept}", f"{third}={last}", f"export {third}"]
    return Binding(
        slots={"name": name, "value": value},
        wordings=(
            "Make sure that every login shell has the environment variable {name} with the value {value}: export it in "
            "the file .profile of the home.",
            "Please add an export of {name}, set to {value}, to ~/.profile. What the file already sets has to stay.",
            "Programs should find {value} in the environment variable {name} after the next login. Set it in "
            "~/.profile, and change nothing else there.",
        ),
        files={".profile": draw.text(before)},
        writes=(".profile",),
        pre=(check("text_is", path=".profile", expected=[*before]),),
        post=(
            Post(
                "variable",
                "The profile exports the variable.",
                (check("shell_variable", path=".profile", variable=name, expected=value),),
            ),
            Post(
                "kept",
                "What it set before is still there.",
                tuple(check("line_count", path=".profile", line=line, times=1) for line in before),
            ),
        ),
        terminal=steps((f"Export {name} in the profile", f"echo 'export {name}={value}' >> ~/.profile")),
        mutants={
            "this shell only": f"export {name}={value}",
            "not exported": f"echo '{name}={value}' >> ~/.profile",
            "overwritten": f"echo 'export {name}={value}' > ~/.profile",
            "commented out": f"echo '# export {name}={value}' >> ~/.profile",
            "never reached": f"echo 'if false; then export {name}={value}; fi' >> ~/.profile",
        },
        equivalents={
            "quoted": f"echo 'export {name}=\"{value}\"' >> ~/.profile",
            "in two steps": f"printf '%s\\n' '{name}={value}; export {name}' >> ~/.profile",
            "at the top": f"sed -i '1i export {name}={value}' ~/.profile",
        },
    )


def _fix_script(rng: Random) -> Binding:
    script, old, new, answer = draw.stems(rng, 4)
    script, old, new, answer = f"{script}.sh", f"{old}.txt", f"{new}.txt", f"{answer}.txt"
    towns = draw.cities(rng, 7)
    while towns == sorted(towns):
        rng.shuffle(towns)
    lines = ["#!/bin/bash", "set -e", f"sort ~/Documents/{old} > ~/Documents/{answer}", f"echo 'sorted {old}'"]
    fixed = [line.replace(old, new) for line in lines]
    path = f"~/Documents/{script}"
    return Binding(
        slots={"script": script, "old": old, "new": new, "answer": answer},
        wordings=(
            "The script Documents/{script} fails because {old} is called {new} now. Correct the name throughout the "
            "script, then run it, so that it writes {answer}.",
            "Please repair Documents/{script}: its list {old} was renamed to {new}. Use the new name everywhere in it "
            "and run it once to make {answer}.",
            "Since somebody renamed {old} to {new} in Documents, {script} there no longer works. Fix every mention in "
            "the script and run it to get {answer}.",
        ),
        files={f"Documents/{script}": draw.text(lines), f"Documents/{new}": draw.text(towns)},
        writes=(f"Documents/{script}", f"Documents/{answer}"),
        reads=(f"Documents/{new}",),
        pre=(check("absent", path=f"Documents/{answer}"), check("absent", path=f"Documents/{old}")),
        post=(
            lines_post("script", "The script uses the new name.", f"Documents/{script}", fixed),
            lines_post("output", "It has been run.", f"Documents/{answer}", sorted(towns)),
        ),
        terminal=steps(
            (f"Read {script}", f"cat {path}"),
            (f"Replace {old} by {new} in it", f"sed -i 's/{old}/{new}/g' {path}"),
            ("Run it", f"bash {path}"),
        ),
        mutants={
            "not run": f"sed -i 's/{old}/{new}/g' {path}",
            "by hand": f"sort ~/Documents/{new} > ~/Documents/{answer}",
            "renamed back": f"mv ~/Documents/{new} ~/Documents/{old}; bash {path}",
            "one mention only": f"sed -i '3s/{old}/{new}/' {path}; bash {path}",
        },
        equivalents={
            "in an editor": f"printf '%s\\n' {' '.join(_quoted(line) for line in fixed)} > {path}; cd /; bash {path}"
        },
    )


def _quoted(line: str) -> str:
    return '"' + line.replace('"', '\\"') + '"'


def _find_text(rng: Random) -> Binding:
    folder, *names = draw.stems(rng, 7)
    answer, wanted, code = f"{names.pop()}.txt", f"{names[0]}.md", draw.code(rng)
    parts = rng.sample(["archive", "drafts", "inbox", "sent"], 3)
    files = {}
    for number, name in enumerate(names):
        said = draw.sentences(rng, 3)
        said.insert(rng.randrange(3), f"Reference {code if number == 0 else draw.code(rng)}")
        files[f"Documents/{folder}/{parts[number % 3]}/{name}.md"] = draw.text(said)
    here = f"~/Documents/{folder}"
    return Binding(
        slots={"folder": folder, "answer": answer, "code": code, "wanted": wanted},
        wordings=(
            "One file somewhere below Documents/{folder} mentions the reference {code}. Write its file name, without "
            "the folder, into {answer} on the Desktop.",
            "Search the folder Documents/{folder} and its subfolders for the file that contains {code}, and save just "
            "its name as {answer} on the Desktop.",
            "Which file in Documents/{folder} (look in all subfolders) has the text {code} in it? Put only the file's "
            "name into {answer} on the Desktop.",
        ),
        files=files,
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{folder}",),
        nonces={wanted: ""},
        post=(lines_post("name", "The file holds the right name.", f"Desktop/{answer}", [wanted]),),
        terminal=steps(
            (
                f"Write the name of the file with {code}",
                f"basename $(grep -rl {code} {here}) > ~/Desktop/{answer}",
            )
        ),
        mutants={
            "with the folder": f"grep -rl {code} {here} > ~/Desktop/{answer}",
            "the line": f"grep -rh {code} {here} > ~/Desktop/{answer}",
            "all names": f"ls {here}/* > ~/Desktop/{answer}",
        },
        equivalents={
            "with find": f"find {here} -name '*.md' -exec grep -q {code} {{}} \\; -printf '%f' > ~/Desktop/{answer}"
        },
    )


NAME, TEXT = Slot("name"), Slot("text")
OS: tuple[Group, Category, tuple[str, ...]] = ("files", "os", ("terminal",))

FAMILIES = (
    Family(
        "system.executable",
        "Let a script be run",
        ("system", "mode", "add"),
        *OS,
        {"folder": NAME, "name": NAME},
        _executable,
    ),
    Family(
        "system.link",
        "Link to a folder",
        ("system", "link", "create"),
        *OS,
        {"folder": NAME, "link": NAME, "wanted": NAME},
        _link,
    ),
    Family(
        "system.unpack",
        "Unpack an archive",
        ("system", "archive", "unpack"),
        *OS,
        {"folder": NAME, "pack": NAME},
        _unpack,
    ),
    Family(
        "system.variable",
        "Export a variable at login",
        ("system", "profile", "export"),
        *OS,
        {"name": TEXT, "value": TEXT},
        _variable,
    ),
    Family(
        "system.fix-script",
        "Repair a script and run it",
        ("system", "script", "repair"),
        *OS,
        {"script": NAME, "old": NAME, "new": NAME, "answer": NAME},
        _fix_script,
    ),
    Family(
        "files.find-text",
        "Name the file that has a text",
        ("files", "text", "find"),
        *OS,
        {"folder": NAME, "answer": NAME, "code": Slot("code"), "wanted": Slot("name", nonce=True)},
        _find_text,
        held_out=True,
    ),
)
