"""Families in which one file says what to take from another, by one shell command."""

from __future__ import annotations

from random import Random

from devset.checks.home import sha256
from devset.families import draw
from devset.families.skill import Binding, Family, Post, Slot, check, lines_post, steps


def _ticket_row(rng: Random) -> Binding:
    note, answer = (f"{s}.txt" for s in draw.stems(rng, 2))
    source, people = f"{draw.stem(rng)}.csv", draw.people(rng, 7)
    tickets = [draw.code(rng) for _ in people]
    rows = [["Ticket", "Name"], *map(list, zip(tickets, people, strict=True))]
    ticket, who = rng.choice(rows[1:])
    return Binding(
        slots={"note": note, "source": source, "answer": answer, "ticket": ticket, "who": who},
        wordings=(
            "The file {note} on the Desktop holds a ticket number. Save its row of "
            "Documents/{source} as {answer} on the Desktop.",
            "Please take the ticket in {note} on the Desktop, find its line in Documents/{source}, "
            "and write that line to "
            "{answer} on the Desktop.",
            "Which row of Documents/{source} belongs to the ticket in {note} on the Desktop? Save "
            "that row in {answer} there.",
        ),
        files={f"Desktop/{note}": draw.text([ticket]), f"Documents/{source}": draw.table(rows)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Desktop/{note}", f"Documents/{source}"),
        nonces={who: f"Documents/{source}"},
        post=(lines_post("row", "The file has exactly that row.", f"Desktop/{answer}", [f"{ticket},{who}"]),),
        terminal=steps(
            ("Save the ticket's row", f"grep -f ~/Desktop/{note} ~/Documents/{source} > ~/Desktop/{answer}"),
        ),
        mutants={
            "ticket only": f"cp ~/Desktop/{note} ~/Desktop/{answer}",
            "all rows": f"cp ~/Documents/{source} ~/Desktop/{answer}",
            "all others": f"grep -v -f ~/Desktop/{note} ~/Documents/{source} > ~/Desktop/{answer}",
        },
        equivalents={"by hand": f"grep {ticket} ~/Documents/{source} > ~/Desktop/{answer}"},
    )


def _listed_file(rng: Random) -> Binding:
    folder, *names = draw.stems(rng, 5)
    note, wanted = f"{draw.stem(rng)}-note.txt", f"{names[0]}.md"
    files = {f"Documents/{n}.md": draw.text(draw.sentences(rng, 2)) for n in names}
    return Binding(
        slots={"note": note, "folder": folder, "wanted": wanted},
        wordings=(
            "The file {note} on the Desktop names a file in Documents. Move that file into the "
            "folder {folder} on the Desktop.",
            "Please read {note} on the Desktop, and move the file it names from Documents to {folder} on the Desktop.",
            "One file in Documents is needed elsewhere: its name is in {note} on the Desktop. Move "
            "it into {folder} there.",
        ),
        files={**files, f"Desktop/{note}": draw.text([wanted]), f"Desktop/{folder}/readme.txt": draw.text(["Inbox"])},
        writes=(f"Documents/{wanted}", f"Desktop/{folder}/{wanted}"),
        reads=(f"Desktop/{note}",),
        nonces={wanted: f"Desktop/{note}"},
        post=(
            Post(
                "moved",
                "The named file is in the folder.",
                (check("file_is", path=f"Desktop/{folder}/{wanted}", sha256_is=sha256(files[f"Documents/{wanted}"])),),
            ),
            Post("source_gone", "It is no longer in Documents.", (check("absent", path=f"Documents/{wanted}"),)),
        ),
        terminal=steps(
            ("Move the file that the note names", f"mv ~/Documents/$(cat ~/Desktop/{note}) ~/Desktop/{folder}/")
        ),
        mutants={
            "the note": f"mv ~/Desktop/{note} ~/Desktop/{folder}/",
            "another file": f"mv ~/Documents/{names[1]}.md ~/Desktop/{folder}/",
            "copied": f"cp ~/Documents/{wanted} ~/Desktop/{folder}/",
        },
        equivalents={"by hand": f"cd ~/Documents && mv {wanted} ../Desktop/{folder}/{wanted}"},
    )


NAME, CODE = Slot("name"), Slot("code", nonce=True)

FAMILIES = (
    Family(
        "cross.ticket-row",
        "The row of a ticket",
        ("text", "key", "join"),
        "crossing",
        "multi_app",
        ("terminal", "csv"),
        {"note": NAME, "source": NAME, "answer": NAME, "ticket": CODE, "who": Slot("name", nonce=True)},
        _ticket_row,
    ),
    Family(
        "cross.listed-file",
        "Move the file that a note names",
        ("text", "name", "follow"),
        "crossing",
        "multi_app",
        ("terminal", "pcmanfm"),
        {"note": NAME, "folder": NAME, "wanted": Slot("name", nonce=True)},
        _listed_file,
        held_out=True,
    ),
)
