"""Families that cross two apps: a value that only one file holds must reach another one."""

from __future__ import annotations

from random import Random

from devset.families import draw, gui
from devset.families.documents import edit_docx, edit_pptx, titles
from devset.families.ooxml import PICTURE_ALPHABET, docx, picture_of, pptx, xlsx
from devset.families.sheets import as_csv, cells, openpyxl, stock
from devset.families.skill import Binding, Family, Post, Slot, check, lines_post, steps
from devset.task import GuiStep, GuiTarget


def _read_then_append(source: str, reading: str, target: str, value: str) -> tuple[GuiStep, ...]:
    """Opens an office document to read a value, closes it, and appends the value to a text file."""
    return (
        gui.double_click(gui.icon(source), f"Open {source} to read from it"),
        gui.key("ctrl+q", reading, window=source),
        *gui.append(target, value),
    )


def _sheet_to_text(rng: Random) -> Binding:
    source, target = draw.stems(rng, 2)
    source, target = f"{source}.xlsx", f"{target}.txt"
    people = draw.people(rng, 6)
    codes = [draw.code(rng) for _ in people]
    pick = rng.randrange(6)
    who, code, before = people[pick], codes[pick], draw.sentences(rng, 2)
    show = f"import openpyxl as o; print(*[r[1] for r in o.load_workbook('{source}').active.values if r[0] == '{who}'])"
    return Binding(
        slots={"source": source, "target": target, "who": who, "code": code},
        wordings=(
            "Find the badge code of {who} in {source} on the Desktop and add it as a new last line to {target} there.",
            "Please look up which Code {source} lists for {who} and append it to {target}. Both are on the Desktop.",
            "The spreadsheet {source} on the Desktop has a code for {who}. Write it as the last line of {target}.",
        ),
        files={
            f"Desktop/{source}": xlsx({"Badges": [["Name", "Code"], *map(list, zip(people, codes, strict=True))]}),
            f"Desktop/{target}": draw.text(before),
        },
        writes=(f"Desktop/{target}",),
        reads=(f"Desktop/{source}",),
        nonces={code: f"Desktop/{source}"},
        post=(lines_post("code", "The code comes last.", f"Desktop/{target}", [*before, code]),),
        terminal=steps((f"Append the code of {who}", f'cd ~/Desktop && python3 -c "{show}" >> {target}')),
        gui=_read_then_append(source, f"The code of {who} is {code}; close the spreadsheet", target, code),
        mutants={
            "somebody else's": f"echo '{codes[pick - 1]}' >> ~/Desktop/{target}",
            "overwritten": f"echo '{code}' > ~/Desktop/{target}",
            "with the name": f"echo '{who} {code}' >> ~/Desktop/{target}",
        },
        equivalents={"typed by hand": f"printf '%s\\n' '{code}' >> ~/Desktop/{target}"},
    )


def _text_to_sheet(rng: Random) -> Binding:
    source, target = draw.stems(rng, 2)
    source, target = f"{source}.txt", f"{target}.xlsx"
    rows, row, value = stock(rng, 6), rng.randint(1, 6), rng.randint(1001, 9899)
    item, at = str(rows[row][0]), f"C{row + 1}"
    wanted = [list(r) for r in rows]
    wanted[row][2] = value
    put = openpyxl(target, f"s['{at}'] = int(open('{source}').read().split()[-1])")
    return Binding(
        slots={"source": source, "target": target, "item": item, "value": value},
        wordings=(
            "The note {source} on the Desktop gives a new quantity for {item}. Put it into the "
            "Quantity column of {target}.",
            "Please update {target} on the Desktop: the Quantity of {item} is the number that {source} says. Save it.",
            "Read the new quantity of {item} in {source} and enter it in the right cell of {target}, "
            "both on the Desktop.",
        ),
        files={
            f"Desktop/{source}": draw.text([f"New quantity of {item}: {value}"]),
            f"Desktop/{target}": xlsx({"Stock": rows}),
        },
        writes=(f"Desktop/{target}",),
        reads=(f"Desktop/{source}",),
        nonces={str(value): f"Desktop/{source}"},
        post=(
            Post(
                "cell",
                "That quantity is set, every other cell as before.",
                (check("sheet_is", path=f"Desktop/{target}", sheet="Stock", cells=cells(wanted)),),
            ),
        ),
        terminal=steps(
            (f"Read {source}", f"cat ~/Desktop/{source}"),
            (f"Set {at} to the number in {source}", put),
        ),
        gui=(
            gui.double_click(gui.icon(source), f"Open {source} to read it"),
            gui.key("ctrl+q", f"The quantity is {value}; close the note", window=source),
            gui.double_click(gui.icon(target), f"Open {target} in Calc"),
            gui.click(GuiTarget(name=at, role="table cell"), f"Click cell {at}", window=target),
            gui.write(f"{value}\n", f"Type {value} and save"),
            *gui.SAVE_OFFICE,
        ),
        mutants={
            "wrong row": openpyxl(target, f"s['C{row % 6 + 2}'] = {value}"),
            "wrong column": openpyxl(target, f"s['D{row + 1}'] = {value}"),
            "not saved": f"echo {value} > ~/Desktop/result.txt",
        },
        equivalents={
            "by search": openpyxl(target, f"[c for c in s['A'] if c.value == '{item}'][0].offset(0, 2).value = {value}")
        },
    )


def _csv_to_slide(rng: Random) -> Binding:
    source, target = f"{draw.stem(rng)}.csv", f"{draw.stem(rng)}.pptx"
    rows, heads = stock(rng, 4), titles(rng, 2)
    wanted = [str(row[0]) for row in rows[1:]]
    lines = f"'\\n'.join(l.split(',')[0] for l in list(open('{source}'))[1:])"
    return Binding(
        slots={"source": source, "target": target, "lines": tuple(wanted)},
        wordings=(
            "Put the items of {source} (its first column, without the header) below the title of slide 1 of {target}, "
            "one per line. Both files are on the Desktop.",
            "Please list the Item column of {source}, one item per line, in the text area of the "
            "first slide of {target} "
            "on the Desktop, and save it.",
            "The first slide of {target} on the Desktop is empty below its title. Fill in the items of {source} there, "
            "a line for each row.",
        ),
        files={
            f"Desktop/{source}": as_csv(rows),
            f"Desktop/{target}": pptx([(heads[0], []), (heads[1], ["to be done"])]),
        },
        writes=(f"Desktop/{target}",),
        reads=(f"Desktop/{source}",),
        nonces=dict.fromkeys(wanted, f"Desktop/{source}"),
        post=(
            Post(
                "lines",
                "The slide lists the items.",
                (check("slide_body", path=f"Desktop/{target}", slide=1, expected=[*wanted]),),
            ),
            Post(
                "titles",
                "The titles are as before.",
                (check("slide_titles", path=f"Desktop/{target}", expected=[*heads]),),
            ),
        ),
        terminal=steps(
            (
                f"List the items on slide 1 of {target}",
                edit_pptx(target, f"p.slides[0].placeholders[1].text = {lines}"),
            )
        ),
        mutants={
            "second slide": edit_pptx(target, f"p.slides[1].placeholders[1].text = {lines}"),
            "in one line": edit_pptx(target, f"p.slides[0].placeholders[1].text = '{' '.join(wanted)}'"),
            "the last is missing": edit_pptx(target, f"p.slides[0].placeholders[1].text = chr(10).join({wanted[:-1]})"),
        },
        equivalents={"typed by hand": edit_pptx(target, f"p.slides[0].placeholders[1].text = chr(10).join({wanted})")},
    )


def _csv_to_doc(rng: Random) -> Binding:
    source, target = f"{draw.stem(rng)}.csv", f"{draw.stem(rng)}.docx"
    rows, before = stock(rng, 6), draw.sentences(rng, 2)
    row = rng.choice(rows[1:])
    item, price = str(row[0]), str(row[3])
    look = f"[l.split(',')[3].strip() for l in open('{source}') if l.startswith('{item},')][0]"
    return Binding(
        slots={"source": source, "target": target, "item": item, "price": price},
        wordings=(
            "Look up the Price of {item} in {source} and add only that number as a last paragraph to "
            "{target} on the Desktop.",
            "Please append a paragraph with the price of {item} to {target}. The price, a number, is in {source}; "
            "both files are on the Desktop.",
            "What does {source} on the Desktop give as the Price of {item}? Add the number as a new "
            "last paragraph of {target}.",
        ),
        files={f"Desktop/{source}": as_csv(rows), f"Desktop/{target}": docx(before)},
        writes=(f"Desktop/{target}",),
        reads=(f"Desktop/{source}",),
        nonces={price: f"Desktop/{source}"},
        post=(
            Post(
                "price",
                "The price comes last.",
                (check("paragraphs_are", path=f"Desktop/{target}", expected=[*before, price]),),
            ),
        ),
        terminal=steps(
            (f"Look up {item}", f"grep ^{item}, ~/Desktop/{source}"),
            ("Append the price to the document", edit_docx(target, f"d.add_paragraph({look})")),
        ),
        mutants={
            "quantity": edit_docx(target, f"d.add_paragraph('{row[2]}')"),
            "overwritten": edit_docx(target, f"d.paragraphs[-1].text = '{price}'"),
            "in the table": f"echo '{price}' >> ~/Desktop/{source}",
        },
        equivalents={"typed by hand": edit_docx(target, f"d.add_paragraph().add_run('{price}')")},
    )


def _picture_code(rng: Random) -> Binding:
    source, target = draw.stems(rng, 2)
    source, target = f"{source}.docx", f"{target}.txt"
    code, before = "".join(rng.choice(PICTURE_ALPHABET) for _ in range(6)), draw.sentences(rng, 2)
    return Binding(
        slots={"source": source, "target": target, "code": code},
        wordings=(
            "The picture in {source} on the Desktop shows a code. Add the code as a new last line to {target} there.",
            "Please read the code that is shown as a picture in {source} and append it to {target}, "
            "both on the Desktop.",
            "Look at the image in the document {source} on the Desktop and write its code as the "
            "last line of {target}.",
        ),
        files={
            f"Desktop/{source}": docx(["Your voucher code:"], picture_of(code)),
            f"Desktop/{target}": draw.text(before),
        },
        writes=(f"Desktop/{target}",),
        reads=(f"Desktop/{source}",),
        nonces={code: ""},
        post=(lines_post("code", "The code comes last.", f"Desktop/{target}", [*before, code]),),
        gui=_read_then_append(source, f"The picture shows {code}; close the document", target, code),
        mutants={
            "the wrong way round": f"echo '{code[::-1] if code != code[::-1] else code + code}' >> ~/Desktop/{target}",
            "overwritten": f"echo '{code}' > ~/Desktop/{target}",
            "the document's text": f"echo 'Your voucher code:' >> ~/Desktop/{target}",
        },
        equivalents={"what the editor saves": f"printf '%s' '{code}' >> ~/Desktop/{target}"},
    )


NAME, CODE, SECRET = Slot("name"), Slot("code", nonce=True), Slot("number", nonce=True)
_ICONS = "the files' names (desktop icons)"

FAMILIES = (
    Family(
        "cross.sheet-to-text",
        "A code from a workbook into a text file",
        ("calc", "cell", "transfer"),
        "crossing",
        "multi_app",
        ("libreoffice_calc", "mousepad"),
        {"source": NAME, "target": NAME, "who": NAME, "code": CODE},
        _sheet_to_text,
        requires_pip=("openpyxl",),
        gui_names=(_ICONS,),
    ),
    Family(
        "cross.text-to-sheet",
        "A number from a note into a workbook",
        ("mousepad", "number", "transfer"),
        "crossing",
        "multi_app",
        ("mousepad", "libreoffice_calc"),
        {"source": NAME, "target": NAME, "item": NAME, "value": SECRET},
        _text_to_sheet,
        requires_pip=("openpyxl",),
        gui_names=(_ICONS, "the cell's address, role `table cell` (Calc)"),
    ),
    Family(
        "cross.csv-to-slide",
        "A column becomes a slide",
        ("csv", "column", "present"),
        "crossing",
        "multi_app",
        ("csv", "libreoffice_impress"),
        {"source": NAME, "target": NAME, "lines": Slot("names", nonce=True)},
        _csv_to_slide,
        requires_pip=("python-pptx",),
    ),
    Family(
        "cross.csv-to-doc",
        "A price from a table into a document",
        ("csv", "cell", "report"),
        "crossing",
        "multi_app",
        ("csv", "libreoffice_writer"),
        {"source": NAME, "target": NAME, "item": NAME, "price": SECRET},
        _csv_to_doc,
        requires_pip=("python-docx",),
        held_out=True,
    ),
    Family(
        "cross.picture-code",
        "A code from a picture into a text file",
        ("writer", "picture", "transfer"),
        "crossing",
        "multi_app",
        ("libreoffice_writer", "mousepad"),
        {"source": NAME, "target": NAME, "code": CODE},
        _picture_code,
        gui_names=(_ICONS,),
        gui_only="The code exists only as pixels of a picture, and no program of the machine turns pixels into text; "
        "a shell could at best unpack the picture and print it dot by dot.",
    ),
)
