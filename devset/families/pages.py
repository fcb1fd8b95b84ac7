"""Families of local web pages, opened in Chromium from their icon: read, compare, press; a note takes the result.

Names relied on: links, buttons, fields and check boxes are named by their text or label, as the browser tells them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from random import Random

from devset.families import draw, gui
from devset.families.ooxml import PICTURE_ALPHABET, picture_of
from devset.families.skill import Binding, Family, Slot, lines_post, steps
from devset.task import GuiStep, GuiTarget

_STYLE = "body{font:20px sans-serif;margin:2em}td,th{padding:.3em 2em;text-align:left}label{display:block;margin:1em 0}"


def page(title: str, body: str) -> bytes:
    """An HTML document on its own: no script, style or picture from elsewhere."""
    head = f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
    return f"{head}<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n".encode()


def rows_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table, a line per row."""
    cells = ["".join(f"<td>{value}</td>" for value in row) for row in rows]
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in head) + "</tr>", *(f"<tr>{row}</tr>" for row in cells)]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def news(rng: Random) -> str:
    """A list of four lines that have nothing to do with what is asked."""
    return "<ul>\n" + "\n".join(f"<li>{line}</li>" for line in draw.sentences(rng, 4)) + "\n</ul>"


def titled(rng: Random) -> str:
    return draw.stem(rng).replace("-", " ").capitalize()


def _show(name: str, title: str, reading: str, *act: GuiStep) -> tuple[GuiStep, ...]:
    """Opens the page from its icon, does `act` there, and closes the browser, which hides the desktop."""
    return (
        gui.double_click(gui.icon(name), f"Open {name} in the browser"),
        *act,
        gui.key("ctrl+w", reading, window=f"{title} - Chromium"),
    )


def _phone(rng: Random) -> Binding:
    first, second = draw.stems(rng, 2)
    source, notes, title, people = f"{first}.html", f"{second}.txt", titled(rng), draw.people(rng, 7)
    phones = [f"0{rng.randint(200, 989)} {rng.randint(100000, 999999)}" for _ in people]
    pick, before = rng.randrange(7), draw.sentences(rng, 2)
    who, phone = people[pick], phones[pick]
    row = f"s=<tr><td>{who}</td><td>[^<]*</td><td>\\([^<]*\\)</td>.*=\\1=p"
    rows = list(zip(people, draw.cities(rng, 7), phones, strict=True))
    return Binding(
        slots={"source": source, "notes": notes, "who": who, "phone": phone},
        wordings=(
            "The page {source} on the Desktop lists phone numbers. Add the one of {who} as a new last line to {notes}.",
            "Please open {source}, find {who} in it, and append that phone number to {notes}. Both are on the Desktop.",
            "What number do I call to reach {who}? It is on the web page {source}; write it below the "
            "lines of {notes} on the Desktop.",
        ),
        files={
            f"Desktop/{source}": page(title, rows_of(["Name", "Office", "Phone"], rows)),
            f"Desktop/{notes}": draw.text(before),
        },
        writes=(f"Desktop/{notes}",),
        reads=(f"Desktop/{source}",),
        nonces={phone: f"Desktop/{source}"},
        post=(lines_post("number", "The number comes last.", f"Desktop/{notes}", [*before, phone]),),
        terminal=steps(
            (f"Look for {who} on the page", f"grep '{who}' ~/Desktop/{source}"),
            ("Append the phone number", f"sed -n '{row}' ~/Desktop/{source} >> ~/Desktop/{notes}"),
        ),
        gui=(*_show(source, title, f"{who} has {phone}; close the page"), *gui.append(notes, phone)),
        mutants={
            "somebody else's": f"echo '{phones[pick - 1]}' >> ~/Desktop/{notes}",
            "the office": f"echo '{rows[pick][1]}' >> ~/Desktop/{notes}",
            "overwritten": f"echo '{phone}' > ~/Desktop/{notes}",
            "with the name": f"echo '{who} {phone}' >> ~/Desktop/{notes}",
        },
        equivalents={"typed by hand": f"printf '%s' '{phone}' >> ~/Desktop/{notes}"},
    )


def _compare(rng: Random) -> Binding:
    *names, notes = draw.stems(rng, 3)
    sources, notes = [f"{name}.html" for name in names], f"{notes}.txt"
    titles = [f"{city} shop" for city in draw.cities(rng, 2)]
    things, prices, before = draw.items(rng, 6), rng.sample(range(101, 990), 12), draw.sentences(rng, 2)
    at = rng.randrange(6)
    both = (prices[at], prices[6 + at])
    lower, higher = str(min(both)), str(max(both))
    tables = [list(zip(things, map(str, prices[i : i + 6]), strict=True)) for i in (0, 6)]
    where = " ".join(f"~/Desktop/{source}" for source in sources)
    found = f"grep -h '<td>{things[at]}<' {where} | sed 's/.*<td>\\([0-9]*\\)<.*/\\1/' | sort -n | head -1"
    return Binding(
        slots={"one": sources[0], "other": sources[1], "notes": notes, "item": things[at], "lower": lower},
        wordings=(
            "The pages {one} and {other} on the Desktop are price lists of two shops. Append the lower price of "
            "{item} to {notes} there.",
            "Compare what {item} cost on the pages {one} and {other}, and add the smaller number as the last line of "
            "{notes}. All are on the Desktop.",
            "Which of the shops {one} and {other} (pages on the Desktop) is cheaper for {item}? Write its price below "
            "the other lines of {notes}.",
        ),
        files={
            **{
                f"Desktop/{source}": page(title, rows_of(["Item", "Price"], table))
                for source, title, table in zip(sources, titles, tables, strict=True)
            },
            f"Desktop/{notes}": draw.text(before),
        },
        writes=(f"Desktop/{notes}",),
        reads=tuple(f"Desktop/{source}" for source in sources),
        nonces={lower: f"Desktop/{sources[both.index(min(both))]}"},
        post=(lines_post("price", "The lower price comes last.", f"Desktop/{notes}", [*before, lower]),),
        terminal=steps(
            (f"Look for {things[at]} on both pages", f"grep '<td>{things[at]}<' {where}"),
            ("Append the lower price", f"{found} >> ~/Desktop/{notes}"),
        ),
        gui=(
            gui.double_click(gui.icon(sources[0]), f"Open {sources[0]} in the browser"),
            gui.key("ctrl+l", f"Here they cost {both[0]}; go to the other page", window=f"{titles[0]} - Chromium"),
            gui.write(f"file:///home/user/Desktop/{sources[1]}\n"),
            gui.key("ctrl+w", f"There they cost {both[1]}; close the page", window=f"{titles[1]} - Chromium"),
            *gui.append(notes, lower),
        ),
        mutants={
            "the higher price": f"echo {higher} >> ~/Desktop/{notes}",
            "another item's": f"echo {prices[at - 1]} >> ~/Desktop/{notes}",
            "both prices": f"printf '%s\\n' {lower} {higher} >> ~/Desktop/{notes}",
        },
        equivalents={"typed by hand": f"printf '%s' {lower} >> ~/Desktop/{notes}"},
    )


def _picture(rng: Random) -> Binding:
    first, second = draw.stems(rng, 2)
    source, notes, title = f"{first}.html", f"{second}.txt", titled(rng)
    code, before = "".join(rng.choice(PICTURE_ALPHABET) for _ in range(6)), draw.sentences(rng, 2)
    drawn = base64.b64encode(picture_of(code)).decode()
    body = f'<p>Show this code when you collect your parcel:</p>\n<img src="data:image/png;base64,{drawn}" alt="code">'
    return Binding(
        slots={"source": source, "notes": notes, "code": code},
        wordings=(
            "The page {source} on the Desktop shows the pickup code of a parcel as a picture. Append the code to "
            "{notes} there.",
            "Please look at the web page {source} and write the code in its picture as the last line of {notes}. Both "
            "are on the Desktop.",
            "I need the code for my parcel in {notes} on the Desktop, as a new last line. You can see it on the page "
            "{source}.",
        ),
        files={f"Desktop/{source}": page(title, body), f"Desktop/{notes}": draw.text(before)},
        writes=(f"Desktop/{notes}",),
        reads=(f"Desktop/{source}",),
        nonces={code: ""},
        post=(lines_post("code", "The code comes last.", f"Desktop/{notes}", [*before, code]),),
        gui=(*_show(source, title, f"The picture shows {code}; close the page"), *gui.append(notes, code)),
        mutants={
            "the page's title": f"echo '{title}' >> ~/Desktop/{notes}",
            "the wrong way round": f"echo '{code[::-1] if code != code[::-1] else code + code}' >> ~/Desktop/{notes}",
            "overwritten": f"echo '{code}' > ~/Desktop/{notes}",
        },
        equivalents={"what the editor saves": f"printf '%s' '{code}' >> ~/Desktop/{notes}"},
    )


def _reveal(rng: Random) -> Binding:
    first, second = draw.stems(rng, 2)
    source, notes, title = f"{first}.html", f"{second}.txt", titled(rng)
    code, key, before = draw.code(rng), rng.randint(128, 250), draw.sentences(rng, 2)
    body = f"""{news(rng)}
<button onclick="reveal()">Show the code</button>
<p id="out"></p>
<script>
const hidden = {[ord(letter) ^ key for letter in code]};
function reveal() {{
  document.getElementById("out").textContent = String.fromCharCode(...hidden.map(n => n ^ {key}));
}}
</script>"""
    decode = (
        f"import re; p = open('{source}').read(); k = int(re.search(r'n \\^ (\\d+)', p)[1]); "
        r"print(''.join(chr(int(n) ^ k) for n in re.search(r'hidden = \[(.*?)\]', p)[1].split(',')))"
    )
    return Binding(
        slots={"source": source, "notes": notes, "code": code},
        wordings=(
            "On the page {source} on the Desktop, the button 'Show the code' reveals a voucher code. Append that code "
            "to {notes} there.",
            "Please open {source}, press 'Show the code', and write what appears as the last line of {notes}. Both are "
            "on the Desktop.",
            "My voucher is behind the button of the web page {source} on the Desktop. Add its code below the lines of "
            "{notes}.",
        ),
        files={f"Desktop/{source}": page(title, body), f"Desktop/{notes}": draw.text(before)},
        writes=(f"Desktop/{notes}",),
        reads=(f"Desktop/{source}",),
        nonces={code: ""},
        post=(lines_post("code", "The code comes last.", f"Desktop/{notes}", [*before, code]),),
        terminal=steps(
            ("Read how the page makes the code", f"grep -A 5 '<script>' ~/Desktop/{source}"),
            ("Do the same and append the code", f'cd ~/Desktop && python3 -c "{decode}" >> {notes}'),
        ),
        gui=(
            *_show(
                source,
                title,
                f"The code is {code}; close the page",
                gui.click(GuiTarget(name="Show the code", role="push button"), "Press the button", window=title),
            ),
            *gui.append(notes, code),
        ),
        mutants={
            "the hidden numbers": f"grep -o '\\[.*\\]' ~/Desktop/{source} >> ~/Desktop/{notes}",
            "half of it": f"echo '{code[:3]}' >> ~/Desktop/{notes}",
            "overwritten": f"echo '{code}' > ~/Desktop/{notes}",
        },
        equivalents={"typed by hand": f"printf '%s' '{code}' >> ~/Desktop/{notes}"},
    )


NAME, CODE, NUMBER = Slot("name"), Slot("code", nonce=True), Slot("number", nonce=True)
READS = ("chromium", "mousepad")
_ICONS, _EDITOR = "the files' names (desktop icons)", "the only element of role `text`, which has no name (mousepad)"

FAMILIES = (
    Family(
        "web.phone",
        "A number from a page into a note",
        ("web", "table", "transfer"),
        "pages",
        "multi_app",
        READS,
        {"source": NAME, "notes": NAME, "who": NAME, "phone": Slot("text", nonce=True)},
        _phone,
        gui_names=(_ICONS, _EDITOR),
    ),
    Family(
        "web.compare",
        "The lower price of two pages",
        ("web", "tables", "compare"),
        "pages",
        "multi_app",
        READS,
        {"one": NAME, "other": NAME, "notes": NAME, "item": NAME, "lower": NUMBER},
        _compare,
        gui_names=(_ICONS, _EDITOR),
    ),
    Family(
        "web.picture-code",
        "A code from a page's picture",
        ("web", "picture", "transfer"),
        "pages",
        "daily",
        READS,
        {"source": NAME, "notes": NAME, "code": CODE},
        _picture,
        gui_names=(_ICONS, _EDITOR),
        gui_only="The code exists only as pixels of a picture, and no program of the machine turns pixels into text; "
        "a shell could at best unpack the picture and print it dot by dot.",
    ),
    Family(
        "web.reveal",
        "A code that a page shows when asked",
        ("web", "script", "transfer"),
        "pages",
        "multi_app",
        READS,
        {"source": NAME, "notes": NAME, "code": CODE},
        _reveal,
        gui_names=(_ICONS, _EDITOR, "`Show the code`, role `push button` (the page)"),
    ),
)
