"""Families of everyday records: a calendar (iCalendar), an address book (vCard), a list of things to do."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from devset.families import draw, gui
from devset.families.skill import Binding, Check, Family, Post, Slot, check, lines_post, steps


@dataclass(frozen=True)
class Event:
    """An entry of a calendar that lasts whole hours of one day."""

    title: str
    day: date
    first: int
    last: int

    def values(self) -> list[str]:
        """SUMMARY, DTSTART and DTEND."""
        return [self.title, *(f"{self.day:%Y%m%d}T{hour:02d}0000" for hour in (self.first, self.last))]

    def lines(self) -> list[str]:
        title, start, end = self.values()
        uid = f"UID:{start}-{self.last}@planner.example"
        return ["BEGIN:VEVENT", uid, f"DTSTART:{start}", f"DTEND:{end}", f"SUMMARY:{title}", "END:VEVENT"]


def _ics(events: Sequence[Event]) -> bytes:
    head = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//planner//EN"]
    return draw.text([*head, *(line for event in events for line in event.lines()), "END:VCALENDAR"])


def _events(rng: Random, count: int) -> list[Event]:
    """Different titles on different days of one month."""
    start = date(rng.randint(2027, 2031), rng.randint(1, 12), 1)
    days = sorted(rng.sample(range(27), count))
    titles = [f"{a} with {b}" for a, b in zip(rng.sample(_OCCASIONS, count), draw.people(rng, count), strict=True)]
    hours = [rng.randint(8, 18) for _ in days]
    return [
        Event(title, start + timedelta(days=day), hour, hour + rng.randint(1, 3))
        for title, day, hour in zip(titles, days, hours, strict=True)
    ]


def _calendar_is(path: str, events: Sequence[Event]) -> Check:
    fields = ["SUMMARY", "DTSTART", "DTEND"]
    return check("components_are", path=path, kind="VEVENT", fields=[*fields], expected=[[*e.values()] for e in events])


def _insert(event: Event, path: str) -> str:
    """Puts the event before the calendar's end; its title has no character that sed minds."""
    lines = "\\n".join(event.lines())
    return f"sed -i 's/^END:VCALENDAR/{lines}\\n&/' {path}"


def _add_event(rng: Random) -> Binding:
    name, (*given, new) = f"{draw.stem(rng)}.ics", _events(rng, 5)
    path, here = f"Documents/{name}", f"~/Documents/{name}"
    later = Event(new.title, new.day, new.first + 1, new.last + 1)
    return Binding(
        slots={"name": name, "title": new.title, "day": f"{new.day:%Y-%m-%d}", "first": new.first, "last": new.last},
        wordings=(
            "Add the event '{title}' on {day} from {first}:00 to {last}:00 to the calendar file Documents/{name}. Keep "
            "all other events.",
            "Please enter '{title}' in my calendar Documents/{name}: it is on {day}, starts at {first}:00 and ends at "
            "{last}:00.",
            "The calendar {name} in Documents lacks '{title}' ({day}, {first}:00 until {last}:00). Add that event, "
            "written like the others.",
        ),
        files={path: _ics(given)},
        writes=(path,),
        pre=(_calendar_is(path, given),),
        post=(Post("event", "The calendar has that event beside the others.", (_calendar_is(path, [*given, new]),)),),
        terminal=steps(
            (f"See how {name} writes an event", f"head -9 {here}"),
            ("Add the event", _insert(new, here)),
        ),
        mutants={
            "behind the end": f"printf '%s\\n' {' '.join(repr(line) for line in new.lines())} >> {here}",
            "an hour later": _insert(later, here),
            "twice": f"{_insert(new, here)}; {_insert(new, here)}",
            "alone": f"sed -i '/BEGIN:VEVENT/,/END:VEVENT/d' {here}; {_insert(new, here)}",
        },
        equivalents={
            "first, with a zone and a note": f"sed -i 's/^PRODID.*/&\\nBEGIN:VEVENT\\nSUMMARY:{new.title}\\nDTSTART;"
            f"TZID=UTC:{new.values()[1]}\\nDTEND;TZID=UTC:{new.values()[2]}\\nDESCRIPTION:a note\\nUID:n@x\\n"
            f"END:VEVENT/' {here}"
        },
    )


def _move_event(rng: Random) -> Binding:
    name, events = f"{draw.stem(rng)}.ics", _events(rng, 5)
    path, here = f"Documents/{name}", f"~/Documents/{name}"
    at = rng.randrange(4)
    old, spare = events[at], events.pop()
    new = Event(old.title, spare.day, old.first, old.last)
    was, then = f"{old.day:%Y%m%d}", f"{new.day:%Y%m%d}"
    moved = [*events[:at], new, *events[at + 1 :]]
    other = events[at - 1]
    return Binding(
        slots={"name": name, "title": old.title, "day": f"{new.day:%Y-%m-%d}"},
        wordings=(
            "In the calendar file Documents/{name}, move '{title}' to {day}, at the same time of day. All other events "
            "stay.",
            "'{title}' takes place on {day} instead, at the usual hours. Please correct it in my calendar "
            "Documents/{name}.",
            "Please change the date of '{title}' in Documents/{name} to {day}. Its hours and the rest of the calendar "
            "stay as they are.",
        ),
        files={path: _ics(events)},
        writes=(path,),
        pre=(_calendar_is(path, events),),
        post=(Post("moved", "That event has its new date, the others are unchanged.", (_calendar_is(path, moved),)),),
        terminal=steps(
            (f"Find '{old.title}'", f"grep -B 3 'SUMMARY:{old.title}' {here}"),
            ("Change its date", f"sed -i 's/^\\(DT[A-Z]*\\):{was}T/\\1:{then}T/' {here}"),
        ),
        mutants={
            "the start only": f"sed -i 's/^DTSTART:{was}T/DTSTART:{then}T/' {here}",
            "another event": f"sed -i 's/^\\(DT[A-Z]*\\):{other.day:%Y%m%d}T/\\1:{then}T/' {here}",
            "a second event": _insert(new, here),
            "removed": f"sed -i '/^BEGIN:VEVENT/{{:a;N;/END:VEVENT/!ba;/SUMMARY:{old.title}/d}}' {here}",
        },
        equivalents={
            "removed and added": f"sed -i '/^BEGIN:VEVENT/{{:a;N;/END:VEVENT/!ba;/SUMMARY:{old.title}/d}}' {here}; "
            f"{_insert(new, here)}"
        },
    )


@dataclass(frozen=True)
class Contact:
    """An entry of an address book."""

    name: str
    phone: str
    email: str
    born: date

    def lines(self) -> list[str]:
        fields = [f"FN:{self.name}", f"TEL:{self.phone}", f"EMAIL:{self.email}", f"BDAY:{self.born:%Y-%m-%d}"]
        return ["BEGIN:VCARD", "VERSION:3.0", *fields, "END:VCARD"]


def _contacts(rng: Random, count: int, months: Sequence[int]) -> list[Contact]:
    return [
        Contact(name, _number(rng), f"{name.lower()}@{draw.stem(rng)}.example", date(rng.randint(1950, 2005), month, 7))
        for name, month in zip(draw.people(rng, count), months, strict=True)
    ]


def _number(rng: Random) -> str:
    return f"0{rng.randint(200, 989)}{rng.randint(100000, 999999)}"


def _vcf(contacts: Sequence[Contact]) -> bytes:
    return draw.text([line for contact in contacts for line in contact.lines()])


def _phone(rng: Random) -> Binding:
    name, given, phone = f"{draw.stem(rng)}.vcf", _contacts(rng, 5, range(1, 6)), _number(rng)
    at = rng.randrange(5)
    who, other = given[at].name, given[at - 1].name
    path, here = f"Documents/{name}", f"~/Documents/{name}"
    fields = ["FN", "TEL", "EMAIL", "BDAY"]

    def book(number: str) -> Check:
        rows = [[c.name, number if c.name == who else c.phone, c.email, f"{c.born:%Y-%m-%d}"] for c in given]
        return check("components_are", path=path, kind="VCARD", fields=[*fields], expected=[[*row] for row in rows])

    def edit(whose: str) -> str:
        return f"sed -i '/^FN:{whose}$/,/^END/s/^TEL.*/TEL:{phone}/' {here}"

    return Binding(
        slots={"name": name, "who": who, "phone": phone},
        wordings=(
            "In the address book Documents/{name}, change the phone number of {who} to {phone}. Everything else stays "
            "as it is.",
            "{who} has a new number, {phone}. Please update the contact in the file Documents/{name}.",
            "Please correct the telephone number of {who} in my contacts, Documents/{name}: it is {phone}.",
        ),
        files={path: _vcf(given)},
        writes=(path,),
        pre=(book(given[at].phone),),
        post=(Post("number", "That contact has the new number, the rest is unchanged.", (book(phone),)),),
        terminal=steps((f"Set the number of {who}", edit(who))),
        mutants={
            "somebody else": edit(other),
            "everybody": f"sed -i 's/^TEL.*/TEL:{phone}/' {here}",
            "a second number": f"sed -i '/^FN:{who}$/a TEL:{phone}' {here}",
            "a second contact": f"printf 'BEGIN:VCARD\\nVERSION:3.0\\nFN:{who}\\nTEL:{phone}\\nEND:VCARD\\n' >> {here}",
        },
        equivalents={"with its kind": f"sed -i '/^FN:{who}$/,/^END/s/^TEL.*/TEL;TYPE=CELL:{phone}/' {here}"},
    )


def _birthdays(rng: Random) -> Binding:
    month, *others = rng.sample(range(1, 13), 5)
    months = [month, month, *others]
    rng.shuffle(months)
    source, answer, people = f"{draw.stem(rng)}.vcf", f"{draw.stem(rng)}.txt", _contacts(rng, 6, months)
    wanted = sorted(c.name for c in people if c.born.month == month)
    here, there = f"~/Documents/{source}", f"~/Desktop/{answer}"

    def born_in(number: int) -> str:
        return f"awk -F: '/^FN/{{n=$2}} /^BDAY:....-{number:02d}-/{{print n}}' {here}"

    return Binding(
        slots={"source": source, "answer": answer, "month": calendar.month_name[month], "people": tuple(wanted)},
        wordings=(
            "Who in the address book Documents/{source} has a birthday in {month}? Write the names, one per line and "
            "sorted, into {answer} on the Desktop.",
            "Please list everybody from Documents/{source} who was born in {month}, in alphabetical order, one name "
            "per line, in {answer} on the Desktop.",
            "I want to send cards in {month}: put the names of the contacts in Documents/{source} with a birthday then "
            "into {answer} on the Desktop, sorted, a line each.",
        ),
        files={f"Documents/{source}": _vcf(people)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        nonces=dict.fromkeys(wanted, f"Documents/{source}"),
        post=(lines_post("names", "The file has exactly those names.", f"Desktop/{answer}", wanted),),
        terminal=steps((f"Write the names of {calendar.month_name[month]}", f"{born_in(month)} | sort > {there}")),
        mutants={
            "another month": f"{born_in(others[0])} | sort > {there}",
            "the first only": f"{born_in(month)} | sort | head -1 > {there}",
            "everybody": f"grep ^FN {here} | cut -d: -f2 | sort > {there}",
            "the other way round": f"{born_in(month)} | sort -r > {there}",
        },
        equivalents={"with grep": f"grep -B 3 '^BDAY:....-{month:02d}-' {here} | sed -n 's/^FN://p' | sort > {there}"},
    )


def _tick(rng: Random) -> Binding:
    name, title = f"{draw.stem(rng)}.md", draw.stem(rng).replace("-", " ").capitalize()
    todo = draw.sentences(rng, 5)
    at = rng.randrange(5)
    done = {(at + 2) % 5}

    def lines(ticked: set[int]) -> list[str]:
        return [f"# {title}", *(f"- [{'x' if i in ticked else ' '}] {todo[i]}" for i in range(5))]

    path, here = f"Desktop/{name}", f"~/Desktop/{name}"
    return Binding(
        slots={"name": name, "item": todo[at]},
        wordings=(
            "Tick off '{item}' in the to-do list {name} on the Desktop, the way done items are marked there.",
            "In {name} on the Desktop, '{item}' is done. Please mark it with [x] like the other finished entry and "
            "save the list.",
            "Please check the box of '{item}' in {name}, which is on the Desktop: [x] instead of [ ]. Leave the rest "
            "alone.",
        ),
        files={path: draw.text(lines(done))},
        writes=(path,),
        pre=(check("text_is", path=path, expected=[*lines(done)]),),
        post=(lines_post("ticked", "That box is ticked and no other has changed.", path, lines(done | {at})),),
        terminal=steps((f"Tick off '{todo[at]}'", f"sed -i 's/^- \\[ \\] {todo[at]}$/- [x] {todo[at]}/' {here}")),
        gui=(
            gui.double_click(gui.icon(name), f"Open {name} in the text editor"),
            gui.click(gui.TEXT_AREA, "Go to the entry, put an x into its box and save", window=name),
            gui.key("ctrl+Home"),
            *([gui.key("Down")] * (at + 1)),
            *([gui.key("Right")] * 3),
            gui.key("Delete"),
            gui.write("x"),
            gui.key("ctrl+s"),
        ),
        mutants={
            "another entry": f"sed -i 's/^- \\[ \\] {todo[at - 1]}$/- [x] {todo[at - 1]}/' {here}",
            "all entries": f"sed -i 's/^- \\[ \\]/- [x]/' {here}",
            "removed": f"sed -i '/{todo[at]}/d' {here}",
            "the box removed": f"sed -i 's/^- \\[ \\] {todo[at]}$/- {todo[at]} [x]/' {here}",
        },
        equivalents={"by number": f"sed -i '{at + 2}s/\\[ \\]/[x]/' {here}"},
    )


_OCCASIONS = """
Breakfast Call Chess Choir Cinema Class Concert Dinner Football Interview Lesson Lunch Meeting Party Rehearsal Review
Swimming Tennis Training Walk Workshop Yoga
""".split()  # noqa: SIM905 - a list of quoted words would take a page
NAME, TEXT, COUNT = Slot("name"), Slot("text"), Slot("count")

FAMILIES = (
    Family(
        "planner.add-event",
        "Add an event to a calendar",
        ("calendar", "event", "add"),
        "records",
        "daily",
        ("terminal",),
        {"name": NAME, "title": TEXT, "day": TEXT, "first": COUNT, "last": COUNT},
        _add_event,
    ),
    Family(
        "planner.phone",
        "Change the number of a contact",
        ("contacts", "contact", "edit"),
        "records",
        "daily",
        ("terminal",),
        {"name": NAME, "who": NAME, "phone": TEXT},
        _phone,
    ),
    Family(
        "planner.tick",
        "Tick off a thing to do",
        ("todo", "entry", "tick"),
        "records",
        "daily",
        ("mousepad",),
        {"name": NAME, "item": TEXT},
        _tick,
        gui_names=("the file's name (desktop icon)", "the only element of role `text`, which has no name (mousepad)"),
    ),
    Family(
        "planner.move-event",
        "Move an event to another day",
        ("calendar", "event", "move"),
        "records",
        "daily",
        ("terminal",),
        {"name": NAME, "title": TEXT, "day": TEXT},
        _move_event,
        held_out=True,
    ),
    Family(
        "planner.birthdays",
        "Whose birthday is in a month",
        ("contacts", "birthdays", "filter"),
        "records",
        "daily",
        ("terminal",),
        {"source": NAME, "answer": NAME, "month": TEXT, "people": Slot("names", nonce=True)},
        _birthdays,
        held_out=True,
    ),
)
