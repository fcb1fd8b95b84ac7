"""Families of local web pages whose Save button makes a file, which the browser puts into Downloads."""

from __future__ import annotations

from random import Random

from devset.families import draw, gui
from devset.families.pages import news, page, rows_of, titled
from devset.families.skill import Binding, Family, Slot, lines_post, steps
from devset.task import GuiStep, GuiTarget

# A button `Save` hands `lines()` to the browser as the download `named`.
_SAVE = """
<button onclick="save()">Save</button>
<script>
function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines().join("\\n") + "\\n"], {type: "text/plain"}));
  link.download = named;
  link.click();
}
"""


_BOOKING = """function lines() {
  const rates = Object.fromEntries([...document.querySelectorAll("tr")].map(row => row.innerText.split("\\t")));
  const [guest, city, nights] = ["Guest", "City", "Nights"].map(id => document.getElementById(id).value.trim());
  return [`Guest: ${guest}`, `City: ${city}`, `Nights: ${nights}`, `Total: ${nights * rates[city]}`];
}"""
_TICKED = 'const lines = () => [...document.querySelectorAll("input:checked")].map(box => box.value);'


def _saving(body: str, named: str, lines: str) -> str:
    """The body with a button that saves what the script `lines` returns as the download `named`."""
    return f'{body}\n{_SAVE}const named = "{named}";\n{lines}\n</script>'


def _named(source: str) -> str:
    """A command that sets `named` to the name of the page's download."""
    return f"named=$(sed -n 's/^const named = \"\\(.*\\)\";$/\\1/p' {source})"


def _save(what: str) -> tuple[GuiStep, ...]:
    return gui.click(GuiTarget(name="Save", role="push button"), f"Save the {what}"), gui.wait(2.0)


def _form(rng: Random) -> Binding:
    source, title, code = f"{draw.stem(rng)}.html", titled(rng), draw.code(rng)
    towns, rates, number = draw.cities(rng, 8), rng.sample(range(101, 490), 8), rng.randint(2, 9)
    (who,), city, rate = draw.people(rng, 1), towns[2], rates[2]
    named = f"booking-{code}.txt"
    filled = {"Guest": who, "City": city, "Nights": str(number)}
    fields = "\n".join(f'<label>{name} <input id="{name}" autocomplete="off"></label>' for name in filled)
    listed = rows_of(["City", "A night"], list(zip(towns, map(str, rates), strict=True)))
    wanted = [*(f"{name}: {value}" for name, value in filled.items()), f"Total: {number * rate}"]
    said = " ".join(f"'{line}'" for line in wanted)
    write = (
        f"{_named(source)}; "
        f"rate=$(sed -n 's/.*<td>{city}<.td><td>\\([0-9]*\\)<.*/\\1/p' {source}); "
        f"printf '%s\\n' 'Guest: {who}' 'City: {city}' 'Nights: {number}' "
        f'"Total: $((rate * {number}))" > ~/Downloads/$named'
    )
    return Binding(
        slots={"source": source, "who": who, "city": city, "number": number, "code": code, "total": number * rate},
        wordings=(
            "Fill in {source} on the Desktop for {who}, {city}, {number} nights, and press Save, which downloads the "
            "booking.",
            "Please book {number} nights in {city} for {who}: the form is {source} on the Desktop, and saving it puts "
            "the booking into Downloads.",
            "{who} needs {number} nights in {city}. Enter that in the page {source} on my Desktop and save the booking "
            "with its button.",
        ),
        files={f"Desktop/{source}": page(title, _saving(f"{news(rng)}\n{listed}\n{fields}", named, _BOOKING))},
        writes=(f"Downloads/{named}",),
        reads=(f"Desktop/{source}",),
        nonces={code: f"Desktop/{source}", str(number * rate): ""},
        post=(lines_post("booking", "The booking is saved as the page saves it.", f"Downloads/{named}", wanted),),
        terminal=steps(
            ("Read what the form saves", f"grep -v '<label>' ~/Desktop/{source}"),
            ("Write the booking as the page would", f"cd ~/Desktop && {write}"),
        ),
        gui=(
            gui.double_click(gui.icon(source), f"Open {source} in the browser"),
            *(
                step
                for name, value in filled.items()
                for step in (
                    gui.click(GuiTarget(name=name, role="entry"), f"Fill in {name}", window=title),
                    gui.write(value),
                )
            ),
            *_save("booking"),
        ),
        mutants={
            "one night more": f"printf '%s\\n' {said} | sed 's/Nights: .*/Nights: {number + 1}/' > ~/Downloads/{named}",
            "without the total": f"printf '%s\\n' {said} | head -3 > ~/Downloads/{named}",
            "under another name": f"printf '%s\\n' {said} > ~/Downloads/booking.txt",
            "on the Desktop": f"printf '%s\\n' {said} > ~/Desktop/{named}",
        },
        equivalents={"written by hand": f"printf '%s\\n' {said} > ~/Downloads/{named}"},
    )


def _checklist(rng: Random) -> Binding:
    source, title, code = f"{draw.stem(rng)}.html", titled(rng), draw.code(rng)
    things = draw.items(rng, 8)
    counts = [rng.randint(2, 9) for _ in things]
    ticked = sorted(rng.sample(range(8), 3))
    wanted, named = [f"{counts[i]} {things[i]}" for i in ticked], f"packing-{code}.txt"
    boxes = "\n".join(
        f'<label><input type="checkbox" value="{count} {thing}"> {thing}</label>'
        for count, thing in zip(counts, things, strict=True)
    )
    said = [things[i] for i in ticked]
    pick = "|".join(said)
    write = (
        f"{_named(source)}; "
        f"grep -E '> ({pick})<' {source} | sed 's/.*value=\"\\([^\"]*\\)\".*/\\1/' > ~/Downloads/$named"
    )
    lines = " ".join(f"'{line}'" for line in wanted)
    return Binding(
        slots={"source": source, "a": said[0], "b": said[1], "c": said[2], "code": code},
        wordings=(
            "On the packing list {source} on the Desktop, tick {a}, {b} and {c}, nothing else, and save: the page puts "
            "the list into Downloads.",
            "Please open the web page {source} on the Desktop, select just {a}, {b} and {c}, and press its Save button "
            "to download the list.",
            "I want to pack {a}, {b} and {c}. Mark them on the page {source} on the Desktop and save the list that it "
            "makes.",
        ),
        files={f"Desktop/{source}": page(title, _saving(boxes, named, _TICKED))},
        writes=(f"Downloads/{named}",),
        reads=(f"Desktop/{source}",),
        nonces={code: f"Desktop/{source}"},
        post=(lines_post("list", "The list has exactly the ticked lines.", f"Downloads/{named}", wanted),),
        terminal=steps(
            ("Read what the page saves", f"grep -E 'input|named|lines' ~/Desktop/{source}"),
            ("Write the list as the page would", f"cd ~/Desktop && {write}"),
        ),
        gui=(
            gui.double_click(gui.icon(source), f"Open {source} in the browser"),
            *(gui.click(GuiTarget(name=thing, role="check box"), f"Tick {thing}", window=title) for thing in said),
            *_save("list"),
        ),
        mutants={
            "names only": f"printf '%s\\n' {' '.join(said)} > ~/Downloads/{named}",
            "one is missing": f"printf '%s\\n' {lines} | head -2 > ~/Downloads/{named}",
            "everything": f"grep -o 'value=\"[^\"]*' ~/Desktop/{source} | cut -d'\"' -f2 > ~/Downloads/{named}",
        },
        equivalents={"written by hand": f"printf '%s\\n' {lines} > ~/Downloads/{named}"},
    )


NAME, CODE, SAVES = Slot("name"), Slot("code", nonce=True), ("chromium",)
_ICON, _BUTTON = "the file's name (desktop icon)", "`Save`, role `push button` (the page)"

FAMILIES = (
    Family(
        "web.form",
        "Fill in a form and save what it makes",
        ("web", "form", "submit"),
        "pages",
        "office",
        SAVES,
        {
            "source": NAME,
            "who": NAME,
            "city": NAME,
            "number": Slot("count"),
            "code": CODE,
            "total": Slot("number", nonce=True),
        },
        _form,
        gui_names=(_ICON, "the fields' labels, role `entry` (the page)", _BUTTON),
    ),
    Family(
        "web.checklist",
        "Tick a list and save it",
        ("web", "boxes", "tick"),
        "pages",
        "daily",
        SAVES,
        {"source": NAME, "a": NAME, "b": NAME, "c": NAME, "code": CODE},
        _checklist,
        gui_names=(_ICON, "the items, role `check box` (the page)", _BUTTON),
        held_out=True,
    ),
)
