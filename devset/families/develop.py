"""Families of development and operations: a JSON configuration, a request log, a git repository."""

from __future__ import annotations

import copy
import json
from random import Random

from pydantic import JsonValue

from devset.checks.home import sha256
from devset.families import draw
from devset.families.repository import INDEX, Commit, object_of, object_path, repository
from devset.families.skill import Binding, Family, Post, Slot, check, lines_post, steps

_SECTIONS = ("archive", "backup", "cache", "database", "mail", "search", "server", "worker")
_KEYS = ("limit", "port", "retries", "timeout", "workers")


def _json(rng: Random) -> Binding:
    name, other = (f"{s}.json" for s in draw.stems(rng, 2))
    (section, second), (key, more) = rng.sample(_SECTIONS, 2), rng.sample(_KEYS, 2)
    given: dict[str, dict[str, JsonValue]] = {
        part: {key: rng.randint(2, 99), more: rng.randint(2, 99), "enabled": rng.random() < 0.5, "name": draw.stem(rng)}
        for part in sorted([section, second])
    }
    value = rng.randint(1001, 9899)
    wanted = copy.deepcopy(given)
    wanted[section][key] = value
    path, there = f"Documents/{name}", f"~/Documents/{name}"

    def put(part: str, new: str, file: str = there, layout: str = "indent=2") -> str:
        program = f"import json, sys; d = json.load(open(sys.argv[1])); d['{part}']['{key}'] = {new}; "
        return f"python3 -c \"{program}json.dump(d, open(sys.argv[1], 'w'), {layout})\" {file}"

    return Binding(
        slots={"name": name, "section": section, "key": key, "value": value},
        wordings=(
            "In the configuration Documents/{name}, set {key} of the section {section} to the number {value}. Leave "
            "all other settings.",
            "Please change the setting {section}.{key} in the file Documents/{name} to {value} (a number), nothing "
            "else.",
            "The setting {key} of {section} in Documents/{name} is wrong. It has to be {value}; the file must stay "
            "valid JSON.",
        ),
        files={
            path: (json.dumps(given, indent=2) + "\n").encode(),
            f"Documents/{other}": (json.dumps(given, indent=2, sort_keys=True) + "\n").encode(),
        },
        writes=(path,),
        pre=(check("json_is", path=path, expected={**given}),),
        post=(Post("setting", "That setting alone has changed.", (check("json_is", path=path, expected={**wanted}),)),),
        terminal=steps((f"Read {name}", f"cat {there}"), (f"Set {section}.{key} to {value}", put(section, str(value)))),
        mutants={
            "another section": put(second, str(value)),
            "as text": put(section, f"'{value}'"),
            "another file": put(section, str(value), f"~/Documents/{other}"),
            "everywhere": f'sed -i \'s/"{key}": [0-9]*/"{key}": {value}/\' {there}',
            "no longer JSON": f"{put(section, str(value))}; echo '// changed' >> {there}",
        },
        equivalents={"in one line": put(section, str(value), layout="separators=(',', ':'), sort_keys=True")},
    )


def _log(rng: Random) -> Binding:
    source, answer, *pages = draw.stems(rng, 6)
    source, answer, pages = f"{source}.log", f"{answer}.txt", [f"/{p}" for p in pages]
    failing, busy = pages[0], pages[1]
    calls = [(failing, 500)] * 5 + [(busy, 500)] * 3 + [(busy, 200)] * 9 + [(pages[2], 500)] * 2 + [(pages[3], 404)] * 6
    rng.shuffle(calls)
    lines = [
        f"2027-03-{4 + n // 10:02d}T{8 + n % 10:02d}:{rng.randint(10, 59)} GET {page} {status} {rng.randint(12, 480)}ms"
        for n, (page, status) in enumerate(calls)
    ]
    here, there = f"~/Documents/{source}", f"~/Desktop/{answer}"

    def most(pick: str) -> str:
        return f"awk '{pick}{{print $3}}' {here} | sort | uniq -c | sort -nr | awk 'NR==1{{print $2}}' > {there}"

    return Binding(
        slots={"source": source, "answer": answer, "failing": failing},
        wordings=(
            "Find out which page failed most often with status 500 according to the log Documents/{source}, and write "
            "only its path into {answer} on the Desktop.",
            "Which path has the most lines with status 500 in Documents/{source}? Save just that path as {answer} on "
            "the Desktop.",
            "Please analyse Documents/{source}: the path with the largest number of 500 responses belongs into "
            "{answer} on the Desktop, and nothing else.",
        ),
        files={f"Documents/{source}": draw.text(lines)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        nonces={failing: f"Documents/{source}"},
        post=(lines_post("path", "The file holds that path.", f"Desktop/{answer}", [failing]),),
        terminal=steps(
            (f"See what a line of {source} looks like", f"head -3 {here}"),
            ("Write the path that failed most often", most("$4==500")),
        ),
        mutants={
            "called most often": most(""),
            "another status": most("$4==404"),
            "with the count": f"grep -c '{failing} 500' {here} > {there}; echo {failing} >> {there}",
            "failed least often": f"echo {pages[2]} > {there}",
        },
        equivalents={
            "in python": 'python3 -c "import collections, sys; print(collections.Counter(l.split()[2] for l in '
            f"open(sys.argv[1]) if l.split()[3] == '500').most_common(1)[0][0])\" {here} > {there}"
        },
    )


def _restore(rng: Random) -> Binding:
    folder, lost, edited, third = draw.stems(rng, 4)
    lost, edited, third = (f"{n}.md" for n in (lost, edited, third))
    code, old = draw.code(rng), draw.text(draw.sentences(rng, 2))
    kept, whole = draw.text(draw.sentences(rng, 3)), draw.text([*draw.sentences(rng, 2), f"Reference {code}"])
    first = {lost: old, edited: kept, third: draw.text(draw.sentences(rng, 2))}
    last = {**first, lost: whole}
    who, when = draw.people(rng, 2), 1_800_000_000 + rng.randrange(10**7)
    history = [Commit(who[0], "First draft", when, first), Commit(who[1], "Complete it", when + 86_400, last)]
    blob, _ = object_of(b"blob", whole)
    here = f"~/Documents/{folder}"
    work = {third: first[third], edited: draw.text([kept.decode().strip(), "A new line, not committed yet"])}
    return Binding(
        slots={"folder": folder, "lost": lost, "edited": edited, "code": code},
        wordings=(
            "The file {lost} was deleted from the git repository Documents/{folder} by mistake. Bring back its last "
            "committed version; my changes in {edited} must survive.",
            "Please restore {lost} in Documents/{folder}, a git repository, as it was committed last. {edited} has "
            "changes that aren't committed: keep them.",
            "I lost {lost} in the repository Documents/{folder}. Get the latest commit's version back, without "
            "touching my edits to {edited}.",
        ),
        files={f"Documents/{folder}/{n}": data for n, data in {**repository(history), **work}.items()},
        writes=(f"Documents/{folder}/{lost}",),
        reads=(f"Documents/{folder}/.git",),
        pre=(check("absent", path=f"Documents/{folder}/{lost}"),),
        setup=INDEX.format(f"Documents/{folder}"),
        nonces={code: f"Documents/{folder}/{object_path(blob)}"},
        post=(
            Post(
                "restored",
                "The last committed version is back.",
                (check("file_is", path=f"Documents/{folder}/{lost}", sha256_is=sha256(whole)),),
            ),
        ),
        terminal=steps(
            ("See what has changed", f"git -C {here} status --short"),
            (f"Restore {lost}", f"git -C {here} checkout HEAD -- {lost}"),
        ),
        mutants={
            "everything reset": f"git -C {here} reset --hard -q",
            "the version before": f"git -C {here} checkout HEAD~1 -- {lost}",
            "an empty file": f"touch {here}/{lost}",
            "elsewhere": f"git -C {here} show HEAD:{lost} > ~/Desktop/{lost}",
        },
        equivalents={
            "from its content": f"git -C {here} show HEAD:{lost} > {here}/{lost}",
            "with restore": f"git -C {here} restore --source=HEAD --worktree {lost}",
        },
    )


def _author(rng: Random) -> Binding:
    folder, answer, *names = draw.stems(rng, 5)
    answer, names = f"{answer}.txt", [f"{n}.md" for n in names]
    people, when = draw.people(rng, 6), 1_800_000_000 + rng.randrange(10**7)
    name, order = names[0], [0, 0, 1, 0, 2, 1]  # the file that each commit changes
    things, towns = draw.items(rng, 7), draw.cities(rng, 7)
    files = {n: draw.text([f"Send {things[-1]} to {towns[-1]}"]) for n in names}
    history: list[Commit] = []
    for number, (person, at) in enumerate(zip(people, order, strict=True)):
        files = {**files, names[at]: files[names[at]] + draw.text([f"Send {things[number]} to {towns[number]}"])}
        history.append(Commit(person, f"Update {names[at]}", when + 90_000 * number, files))
    made, wanted = repository(history), people[3]
    heads = {n: p for p, data in made.items() for n in people if f"author {n} ".encode() in data}
    here, there = f"~/Documents/{folder}", f"~/Desktop/{answer}"

    def last(options: str) -> str:
        return f"git -C {here} log {options} > {there}"

    return Binding(
        slots={"folder": folder, "name": name, "answer": answer, "wanted": wanted},
        wordings=(
            "Find out who made the latest commit that changed {name} in the git repository Documents/{folder}, and "
            "write just the author's name into {answer} on the Desktop.",
            "Who changed {name} last, according to the history of the git repository Documents/{folder}? Save only the "
            "author's name as {answer} on the Desktop.",
            "Please look up the author of the newest commit to {name} in Documents/{folder} (a git repository) and put "
            "the name into {answer} on the Desktop.",
        ),
        files={f"Documents/{folder}/{n}": data for n, data in {**made, **files}.items()},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{folder}/.git",),
        setup=INDEX.format(f"Documents/{folder}"),
        nonces={wanted: f"Documents/{folder}/{heads[wanted]}"},
        post=(lines_post("author", "The file holds that name.", f"Desktop/{answer}", [wanted]),),
        terminal=steps(
            (f"See the history of {name}", f"git -C {here} log --format='%an: %s' -- {name}"),
            ("Write the last author's name", last(f"-1 --format=%an -- {name}")),
        ),
        mutants={
            "of any file": last("-1 --format=%an"),
            "the first author": last(f"--reverse --format=%an -- {name} | head -1"),
            "with the address": last(f"-1 --format='%an <%ae>' -- {name}"),
            "all authors": last(f"--format=%an -- {name}"),
        },
        equivalents={"with head": last(f"--format=%an -- {name} | head -1")},
    )


NAME, TEXT, SECRET = Slot("name"), Slot("text"), Slot("name", nonce=True)

FAMILIES = (
    Family(
        "develop.json-value",
        "Change a setting in JSON",
        ("json", "value", "set"),
        "records",
        "professional",
        ("terminal",),
        {"name": NAME, "section": NAME, "key": NAME, "value": Slot("number")},
        _json,
    ),
    Family(
        "develop.log-top",
        "The page that failed most often",
        ("log", "requests", "rank"),
        "records",
        "professional",
        ("terminal",),
        {"source": NAME, "answer": NAME, "failing": SECRET},
        _log,
    ),
    Family(
        "develop.git-restore",
        "Restore a committed file",
        ("git", "file", "restore"),
        "records",
        "professional",
        ("terminal",),
        {"folder": NAME, "lost": NAME, "edited": NAME, "code": Slot("code", nonce=True)},
        _restore,
    ),
    Family(
        "develop.git-author",
        "Who changed a file last",
        ("git", "history", "search"),
        "records",
        "professional",
        ("terminal",),
        {"folder": NAME, "name": NAME, "answer": NAME, "wanted": SECRET},
        _author,
        held_out=True,
    ),
)
