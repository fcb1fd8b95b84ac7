"""Families of plain text, one shell command each."""

from __future__ import annotations

from random import Random

from devset.families import draw
from devset.families.skill import Binding, Family, Slot, check, lines_post, steps


def _replace_all(rng: Random) -> Binding:
    name, other = (f"{s}.txt" for s in draw.stems(rng, 2))
    old, new = draw.people(rng, 2)
    lines = [
        f"{old}: {s}" if rng.random() < 0.5 else s.replace(old, "Ada").replace(new, "Ada")
        for s in draw.sentences(rng, 4)
    ]
    lines = [f"Report by {old}", *(s.replace(new, "Ada") for s in lines), f"Signed: {old}"]
    wanted = [line.replace(old, new) for line in lines]
    return Binding(
        slots={"name": name, "old": old, "new": new},
        wordings=(
            "In the file {name} on the Desktop, replace every {old} by {new} and save the file.",
            "The person responsible has changed: in {name} on the Desktop, write {new} wherever it says {old}.",
            "Please change all occurrences of {old} to {new} in {name}, which is on the Desktop.",
        ),
        files={f"Desktop/{name}": draw.text(lines), f"Desktop/{other}": draw.text([f"{old} knows this"])},
        writes=(f"Desktop/{name}",),
        pre=(check("text_is", path=f"Desktop/{name}", expected=[*lines]),),
        post=(lines_post("replaced", "Every occurrence is replaced.", f"Desktop/{name}", wanted),),
        terminal=steps((f"Replace {old} by {new}", f"sed -i 's/{old}/{new}/g' ~/Desktop/{name}")),
        mutants={
            "first line only": f"sed -i '1s/{old}/{new}/' ~/Desktop/{name}",
            "other file": f"sed -i 's/{old}/{new}/g' ~/Desktop/{other}",
            "not saved": f"sed 's/{old}/{new}/g' ~/Desktop/{name} > ~/Desktop/new-{name}",
        },
        equivalents={
            "in python": f"cd ~/Desktop && python3 -c \"import pathlib; p = pathlib.Path('{name}'); "
            f"p.write_text(p.read_text().replace('{old}', '{new}'))\""
        },
    )


def _write(rng: Random) -> Binding:
    name, source = (f"{s}.txt" for s in draw.stems(rng, 2))
    line, (first, *rest) = draw.sentence(rng), draw.sentences(rng, 3)
    new, given = f"~/Documents/{name}", f"~/Documents/{source}"
    return Binding(
        slots={"name": name, "line": line, "source": source},
        wordings=(
            "Create a text file {name} in Documents with two lines: '{line}', and below it the first line of "
            "{source}, which is in Documents too.",
            "Please write a new file {name} in the Documents folder: the line '{line}', then the first line of "
            "{source} from the same folder.",
            "I need a note {name} in my Documents folder. It should say '{line}', and on its second line what the "
            "first line of {source} there says.",
        ),
        files={f"Documents/{source}": draw.text([first, *rest])},
        writes=(f"Documents/{name}",),
        reads=(f"Documents/{source}",),
        pre=(check("absent", path=f"Documents/{name}"),),
        post=(lines_post("written", "The file has exactly those lines.", f"Documents/{name}", [line, first]),),
        terminal=steps((f"Write both lines into {name}", f"(echo '{line}'; head -n 1 {given}) > {new}")),
        mutants={
            "on the Desktop": f"(echo '{line}'; head -n 1 {given}) > ~/Desktop/{name}",
            "the line alone": f"echo '{line}' > {new}",
            "half": f"(echo '{line[:-3]}'; head -n 1 {given}) > {new}",
            "all of the other": f"(echo '{line}'; cat {given}) > {new}",
            "the other way round": f"(head -n 1 {given}; echo '{line}') > {new}",
        },
        equivalents={"with printf": f"printf '%s\\n%s' '{line}' \"$(sed 1q {given})\" > {new}"},
    )


def _sort(rng: Random) -> Binding:
    name, other = (f"{s}.txt" for s in draw.stems(rng, 2))
    lines = draw.cities(rng, 6)
    while lines == sorted(lines):
        rng.shuffle(lines)
    return Binding(
        slots={"name": name},
        wordings=(
            "Sort the lines of the file {name} on the Desktop alphabetically, from A to Z, in the same file.",
            "The list in {name} on the Desktop is out of order. Put its lines into alphabetical order.",
            "Please bring the lines of {name}, which is on the Desktop, into alphabetical order and save it.",
        ),
        files={f"Desktop/{name}": draw.text(lines), f"Desktop/{other}": draw.text(draw.cities(rng, 3))},
        writes=(f"Desktop/{name}",),
        post=(lines_post("sorted", "The lines are in order.", f"Desktop/{name}", sorted(lines)),),
        terminal=steps((f"Sort {name} in place", f"sort -o ~/Desktop/{name} ~/Desktop/{name}")),
        mutants={
            "emptied": f"sort ~/Desktop/{name} > ~/Desktop/{name}",
            "not saved": f"sort ~/Desktop/{name} > ~/Desktop/sorted.txt",
            "reversed": f"sort -r -o ~/Desktop/{name} ~/Desktop/{name}",
        },
        equivalents={
            "through a copy": f"cd ~/Desktop && sort {name} > /tmp/sorted-{name} && cat "
            f"/tmp/sorted-{name} > {name} && rm /tmp/sorted-{name}"
        },
    )


def _grep(rng: Random) -> Binding:
    source, answer = f"{draw.stem(rng)}.log", f"{draw.stem(rng)}.txt"
    words = rng.sample(["ERROR", "WARN", "INFO", "DEBUG"], 3)
    lines = [f"{word} {s}" for word, s in zip([*words, *rng.choices(words, k=6)], draw.sentences(rng, 9), strict=True)]
    rng.shuffle(lines)
    wanted = [line for line in lines if line.startswith(words[0])]
    return Binding(
        slots={"source": source, "answer": answer, "word": words[0]},
        wordings=(
            "Copy all lines that contain {word} from Documents/{source} into a new file {answer} on "
            "the Desktop, in the same order.",
            "Find every line with the word {word} in Documents/{source} and save those lines as "
            "{answer} on the Desktop.",
            "Please pick the {word} lines out of the log Documents/{source} and write them to {answer} on the Desktop.",
        ),
        files={f"Documents/{source}": draw.text(lines)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        post=(lines_post("lines", "The file has exactly those lines.", f"Desktop/{answer}", wanted),),
        terminal=steps((f"Save the {words[0]} lines", f"grep {words[0]} ~/Documents/{source} > ~/Desktop/{answer}")),
        mutants={
            "other word": f"grep {words[1]} ~/Documents/{source} > ~/Desktop/{answer}",
            "all lines": f"cp ~/Documents/{source} ~/Desktop/{answer}",
            "numbered": f"grep -n {words[0]} ~/Documents/{source} > ~/Desktop/{answer}",
        },
        equivalents={"with sed": f"sed -n '/{words[0]}/p' ~/Documents/{source} > ~/Desktop/{answer}"},
    )


def _first_lines(rng: Random) -> Binding:
    source, answer = (f"{s}.txt" for s in draw.stems(rng, 2))
    lines, count = draw.sentences(rng, 8), rng.randint(2, 6)
    return Binding(
        slots={"source": source, "answer": answer, "count": count},
        wordings=(
            "Copy the first {count} lines of Documents/{source} into a new file {answer} on the Desktop.",
            "Please save only the first {count} lines of the file {source} in Documents as {answer} on the Desktop.",
            "I need the top {count} lines of Documents/{source}. Write them to {answer} on the Desktop.",
        ),
        files={f"Documents/{source}": draw.text(lines)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        post=(lines_post("lines", "The file has exactly those lines.", f"Desktop/{answer}", lines[:count]),),
        terminal=steps((f"Save the first {count} lines", f"head -n {count} ~/Documents/{source} > ~/Desktop/{answer}")),
        mutants={
            "last lines": f"tail -n {count} ~/Documents/{source} > ~/Desktop/{answer}",
            "one more": f"head -n {count + 1} ~/Documents/{source} > ~/Desktop/{answer}",
            "cut the source": f"head -n {count} ~/Documents/{source} > ~/Desktop/{answer}; cp "
            f"~/Desktop/{answer} ~/Documents/{source}",
        },
        equivalents={"with sed": f"sed {count}q ~/Documents/{source} > ~/Desktop/{answer}"},
    )


def _drop_lines(rng: Random) -> Binding:
    name, word = f"{draw.stem(rng)}.txt", rng.choice(["draft", "old", "cancelled", "done"])
    lines = [f"{s} ({word})" if i in (1, 4) else s for i, s in enumerate(draw.sentences(rng, 6))]
    kept = [line for line in lines if word not in line]
    return Binding(
        slots={"name": name, "word": word},
        wordings=(
            "Delete every line that contains ({word}) from the file {name} on the Desktop and keep the other lines.",
            "Please clean up {name} on the Desktop: remove the lines marked ({word}), leave all others as they are.",
            "In {name} on the Desktop, some lines end in ({word}). Take these lines out of the file.",
        ),
        files={f"Desktop/{name}": draw.text(lines)},
        writes=(f"Desktop/{name}",),
        post=(lines_post("cleaned", "Exactly those lines are gone.", f"Desktop/{name}", kept),),
        terminal=steps((f"Delete the lines marked ({word})", f"sed -i '/({word})/d' ~/Desktop/{name}")),
        mutants={
            "words only": f"sed -i 's/ ({word})//' ~/Desktop/{name}",
            "not saved": f"grep -v '({word})' ~/Desktop/{name} > ~/Desktop/clean.txt",
            "kept the wrong ones": f"sed -i '/({word})/!d' ~/Desktop/{name}",
        },
        equivalents={
            "with grep": f"cd ~/Desktop; grep -v '({word})' {name} > /tmp/kept-{name}; cat "
            f"/tmp/kept-{name} > {name}; rm /tmp/kept-{name}"
        },
    )


def _unique(rng: Random) -> Binding:
    source, answer = (f"{s}.txt" for s in draw.stems(rng, 2))
    towns = draw.cities(rng, 6)
    lines = [*towns, *rng.sample(towns, 3)]
    rng.shuffle(lines)
    return Binding(
        slots={"source": source, "answer": answer},
        wordings=(
            "Write the lines of Documents/{source} sorted and without repetitions into a new file "
            "{answer} on the Desktop.",
            "Some lines occur twice in Documents/{source}. Save a sorted list with each line once as "
            "{answer} on the Desktop.",
            "Please make {answer} on the Desktop: every different line of Documents/{source} once, "
            "in alphabetical order.",
        ),
        files={f"Documents/{source}": draw.text(lines)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        post=(lines_post("unique", "Each line once, in order.", f"Desktop/{answer}", sorted(towns)),),
        terminal=steps(("Save the sorted unique lines", f"sort -u ~/Documents/{source} > ~/Desktop/{answer}")),
        mutants={
            "only sorted": f"sort ~/Documents/{source} > ~/Desktop/{answer}",
            "counted": f"sort ~/Documents/{source} | uniq -c > ~/Desktop/{answer}",
            "repeated only": f"sort ~/Documents/{source} | uniq -d > ~/Desktop/{answer}",
        },
        equivalents={"with uniq": f"sort ~/Documents/{source} | uniq > ~/Desktop/{answer}"},
    )


NAME, TEXT = Slot("name"), Slot("text")

FAMILIES = (
    Family(
        "text.replace",
        "Replace a word everywhere",
        ("text", "file", "replace"),
        "text",
        "daily",
        ("terminal",),
        {"name": NAME, "old": NAME, "new": NAME},
        _replace_all,
    ),
    Family(
        "text.write",
        "Write a short file",
        ("text", "file", "create"),
        "text",
        "daily",
        ("terminal",),
        {"name": NAME, "line": TEXT, "source": NAME},
        _write,
    ),
    Family("text.sort", "Sort lines", ("text", "lines", "sort"), "text", "daily", ("terminal",), {"name": NAME}, _sort),
    Family(
        "text.grep",
        "Pick lines by a word",
        ("text", "lines", "filter"),
        "text",
        "os",
        ("terminal",),
        {"source": NAME, "answer": NAME, "word": TEXT},
        _grep,
    ),
    Family(
        "text.first-lines",
        "Keep the first lines",
        ("text", "lines", "cut"),
        "text",
        "daily",
        ("terminal",),
        {"source": NAME, "answer": NAME, "count": Slot("count")},
        _first_lines,
    ),
    Family(
        "text.drop-lines",
        "Delete marked lines",
        ("text", "lines", "delete"),
        "text",
        "daily",
        ("terminal",),
        {"name": NAME, "word": TEXT},
        _drop_lines,
        held_out=True,
    ),
    Family(
        "text.unique",
        "Sorted unique lines",
        ("text", "lines", "unique"),
        "text",
        "os",
        ("terminal",),
        {"source": NAME, "answer": NAME},
        _unique,
        held_out=True,
    ),
)
