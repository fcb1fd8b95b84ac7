"""Families of spreadsheets: CSV by one shell command, workbooks by openpyxl or LibreOffice Calc."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pydantic import JsonValue

from devset.families import draw, gui
from devset.families.ooxml import Value, column, xlsx
from devset.families.skill import Binding, Family, Post, Slot, check, steps
from devset.task import GuiStep, GuiTarget

Rows = list[list[str | int]]


def stock(rng: Random, count: int) -> Rows:
    """A header and `count` rows: item, city, quantity, price (whole numbers, no two rows share an item)."""
    rows: Rows = [["Item", "City", "Quantity", "Price"]]
    for item, city in zip(draw.items(rng, count), draw.cities(rng, count), strict=True):
        rows.append([item, city, rng.randint(2, 98), rng.randint(101, 989)])
    return rows


def as_csv(rows: Rows) -> bytes:
    return draw.table([[str(value) for value in row] for row in rows])


def cells(rows: Sequence[Sequence[Value]]) -> dict[str, JsonValue]:
    """Coordinate → value of a sheet that starts at A1."""
    return {f"{column(c)}{r}": value for r, row in enumerate(rows, 1) for c, value in enumerate(row)}


def edit_cell(name: str, at: str, value: str) -> tuple[GuiStep, ...]:
    """Opens a workbook from its icon, clicks a visible cell, types the value and saves in the same format."""
    return (
        gui.double_click(gui.icon(name), f"Open {name} in Calc"),
        gui.click(GuiTarget(name=at, role="table cell"), f"Click cell {at}", window=name),
        gui.write(f"{value}\n", f"Type {value} and save"),
        *gui.SAVE_OFFICE,
    )


def openpyxl(name: str, body: str) -> str:
    """A one-command edit of a workbook on the Desktop: `w` is the workbook, `s` its first sheet."""
    program = f"import openpyxl as o; w = o.load_workbook('{name}'); s = w.active; {body}; w.save('{name}')"
    return f'cd ~/Desktop && python3 -c "{program}"'


def _set_cell(rng: Random) -> Binding:
    first, other = draw.stems(rng, 2)
    name, rows = f"{first}.xlsx", stock(rng, 6)
    row, value = rng.randint(1, 6), rng.randint(1001, 9899)
    at, item = f"C{row + 1}", str(rows[row][0])
    wanted = [list(r) for r in rows]
    wanted[row][2] = value
    after = check("sheet_is", path=f"Desktop/{name}", sheet="Stock", cells=cells(wanted))
    return Binding(
        slots={"name": name, "at": at, "value": value},
        wordings=(
            "In the spreadsheet {name} on the Desktop, set cell {at} to {value} and save the file in its format.",
            "Please correct {name}, which is on the Desktop: cell {at} must be {value}. Save it as xlsx again.",
            "Open {name} on the Desktop, type the number {value} into cell {at}, and save the workbook.",
        ),
        files={f"Desktop/{name}": xlsx({"Stock": rows}), f"Desktop/{other}.xlsx": xlsx({"Stock": stock(rng, 3)})},
        writes=(f"Desktop/{name}",),
        pre=(check("sheet_is", path=f"Desktop/{name}", sheet="Stock", cells=cells(rows)),),
        post=(Post("cell", f"{at} is {value}, every other cell as before.", (after,)),),
        terminal=steps((f"Set {at} to {value}", openpyxl(name, f"s['{at}'] = {value}"))),
        gui=edit_cell(name, at, str(value)),
        mutants={
            "as text": openpyxl(name, f"s['{at}'] = '{value}'"),
            "wrong cell": openpyxl(name, f"s['D{row + 1}'] = {value}"),
            "wrong file": openpyxl(f"{other}.xlsx", f"s['{at}'] = {value}"),
            "not a workbook": f"echo '{item},{value}' > ~/Desktop/{name}",
        },
        equivalents={"by row and column": openpyxl(name, f"s.cell(row={row + 1}, column=3, value={value})")},
    )


def _rename_sheet(rng: Random) -> Binding:
    name, title = f"{draw.stem(rng)}.xlsx", f"{rng.choice(draw.CITIES)} {rng.randint(2019, 2039)}"
    sheets: dict[str, Sequence[Sequence[Value]]] = {
        "Sheet1": stock(rng, 4),
        "Notes": [[s] for s in draw.sentences(rng, 2)],
    }
    return Binding(
        slots={"name": name, "title": title},
        wordings=(
            "In the workbook {name} on the Desktop, rename the sheet Sheet1 to '{title}' and save the file.",
            "Please open {name} on the Desktop, give its first sheet (Sheet1) the name '{title}', and save it as xlsx.",
            "The sheet Sheet1 of {name} on the Desktop should be called '{title}'. Change that and keep the rest.",
        ),
        files={f"Desktop/{name}": xlsx(sheets)},
        writes=(f"Desktop/{name}",),
        post=(
            Post(
                "renamed",
                "The sheets have the right names.",
                (check("sheet_names", path=f"Desktop/{name}", expected=[title, "Notes"]),),
            ),
            Post(
                "kept",
                "The cells are as before.",
                (check("cells_are", path=f"Desktop/{name}", cells=cells(sheets["Sheet1"])),),
            ),
        ),
        terminal=steps((f"Rename Sheet1 to {title}", openpyxl(name, f"w['Sheet1'].title = '{title}'"))),
        mutants={
            "a new sheet": openpyxl(name, f"w.create_sheet('{title}', 0)"),
            "the other sheet": openpyxl(name, f"w['Notes'].title = '{title}'"),
            "the title as a cell": openpyxl(name, f"s['A1'] = '{title}'"),
        },
        equivalents={"by position": openpyxl(name, f"w.worksheets[0].title = '{title}'")},
    )


def _add_row(rng: Random) -> Binding:
    name, other = (f"{s}.csv" for s in draw.stems(rng, 2))
    *rows, last = stock(rng, 6)
    line = ",".join(map(str, last))
    return Binding(
        slots={"name": name, "item": str(last[0]), "city": str(last[1]), "quantity": last[2], "price": last[3]},
        wordings=(
            "Add a row to the end of {name} on the Desktop: Item {item}, City {city}, Quantity "
            "{quantity}, Price {price}.",
            "Please append one more row to the CSV file {name} on the Desktop: {item}, {city}, {quantity}, {price}.",
            "We got {quantity} {item} in {city} at a price of {price}. Add this as the last row of "
            "{name} on the Desktop.",
        ),
        files={f"Desktop/{name}": as_csv(rows), f"Desktop/{other}": as_csv(stock(rng, 3))},
        writes=(f"Desktop/{name}",),
        post=(
            Post(
                "row", "The row comes last.", (check("csv_is", path=f"Desktop/{name}", rows=_strings([*rows, last])),)
            ),
        ),
        terminal=steps((f"Append the row to {name}", f"echo '{line}' >> ~/Desktop/{name}")),
        mutants={
            "overwritten": f"echo '{line}' > ~/Desktop/{name}",
            "other file": f"echo '{line}' >> ~/Desktop/{other}",
            "wrong order": f"echo '{last[0]},{last[1]},{last[3]},{last[2]}' >> ~/Desktop/{name}",
        },
        equivalents={"quoted": f'echo \'"{last[0]}","{last[1]}",{last[2]},{last[3]}\' >> ~/Desktop/{name}'},
    )


def _sum(rng: Random) -> Binding:
    source, answer, rows = f"{draw.stem(rng)}.csv", f"{draw.stem(rng)}.txt", stock(rng, rng.randint(5, 9))
    index, head = rng.choice([(2, "Quantity"), (3, "Price")])
    total = sum(int(row[index]) for row in rows[1:])
    add = f"awk -F, 'NR>1{{s+=${index + 1}}}END{{print s}}'"
    return Binding(
        slots={"source": source, "answer": answer, "head": head, "total": total},
        wordings=(
            "Add up the column {head} of Documents/{source} and write only the total into {answer} on the Desktop.",
            "What is the sum of the {head} column in Documents/{source}? Save just the number as "
            "{answer} on the Desktop.",
            "Please compute the total of the column {head} in Documents/{source} and store it in "
            "{answer} on the Desktop.",
        ),
        files={f"Documents/{source}": as_csv(rows)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        nonces={str(total): ""},
        post=(
            Post("total", "The file holds the total.", (check("number_is", path=f"Desktop/{answer}", expected=total),)),
        ),
        terminal=steps((f"Write the sum of {head} into {answer}", f"{add} ~/Documents/{source} > ~/Desktop/{answer}")),
        mutants={
            "other column": f"{add.replace(f'${index + 1}', f'${6 - index}')} ~/Documents/{source} > "
            f"~/Desktop/{answer}",
            "number of rows": f"wc -l < ~/Documents/{source} > ~/Desktop/{answer}",
            "off by one row": f"head -n -1 ~/Documents/{source} | {add} > ~/Desktop/{answer}",
        },
        equivalents={
            "in python": f"cd ~/Documents && python3 -c \"import csv; print(sum(float(r['{head}']) "
            f"for r in csv.DictReader(open('{source}'))))\" > ~/Desktop/{answer}"
        },
    )


def _cut(rng: Random) -> Binding:
    source, answer = (f"{s}.csv" for s in draw.stems(rng, 2))
    rows = stock(rng, 6)
    index = rng.randint(1, 4)
    wanted = [str(row[index - 1]) for row in rows]
    return Binding(
        slots={"source": source, "answer": answer, "head": wanted[0]},
        wordings=(
            "Write only the column {head} of Documents/{source}, with its header, into a new file "
            "{answer} on the Desktop.",
            "Please extract the {head} column from Documents/{source} and save it, header included, "
            "as {answer} on the Desktop.",
            "From the table Documents/{source} I need nothing but the column {head} (with its "
            "heading), as {answer} on the Desktop.",
        ),
        files={f"Documents/{source}": as_csv(rows)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        post=(
            Post(
                "column",
                "The file has exactly that column.",
                (check("csv_is", path=f"Desktop/{answer}", rows=[[value] for value in wanted]),),
            ),
        ),
        terminal=steps(
            (f"Save the column {wanted[0]}", f"cut -d, -f{index} ~/Documents/{source} > ~/Desktop/{answer}")
        ),
        mutants={
            "other column": f"cut -d, -f{index % 4 + 1} ~/Documents/{source} > ~/Desktop/{answer}",
            "without header": f"tail -n +2 ~/Documents/{source} | cut -d, -f{index} > ~/Desktop/{answer}",
            "all columns": f"cp ~/Documents/{source} ~/Desktop/{answer}",
        },
        equivalents={
            "with awk": f"awk -F, '{{print ${index}}}' ~/Documents/{source} > ~/Desktop/{answer}",
            "quoted": f'awk -F, \'{{print "\\"" ${index} "\\""}}\' ~/Documents/{source} > ~/Desktop/{answer}',
        },
    )


def _lookup(rng: Random) -> Binding:
    source, answer, rows = f"{draw.stem(rng)}.csv", f"{draw.stem(rng)}.txt", stock(rng, 8)
    row = rng.choice(rows[1:])
    item, price = str(row[0]), str(row[3])
    return Binding(
        slots={"source": source, "answer": answer, "item": item, "price": price},
        wordings=(
            "Look up the Price of {item} in Documents/{source} and write only that number into "
            "{answer} on the Desktop.",
            "What is the price of {item} according to Documents/{source}? Save just the number as "
            "{answer} on the Desktop.",
            "Please find {item} in the table Documents/{source} and put its Price, nothing else, "
            "into {answer} on the Desktop.",
        ),
        files={f"Documents/{source}": as_csv(rows)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        nonces={price: f"Documents/{source}"},
        post=(
            Post(
                "price",
                "The file holds the price.",
                (check("number_is", path=f"Desktop/{answer}", expected=int(price)),),
            ),
        ),
        terminal=steps(
            (f"Write the price of {item}", f"grep ^{item}, ~/Documents/{source} | cut -d, -f4 > ~/Desktop/{answer}")
        ),
        mutants={
            "quantity": f"grep ^{item}, ~/Documents/{source} | cut -d, -f3 > ~/Desktop/{answer}",
            "the row": f"grep ^{item}, ~/Documents/{source} > ~/Desktop/{answer}",
            "all prices": f"cut -d, -f4 ~/Documents/{source} > ~/Desktop/{answer}",
        },
        equivalents={"with awk": f"awk -F, '$1==\"{item}\"{{print $4}}' ~/Documents/{source} > ~/Desktop/{answer}"},
    )


def _filter(rng: Random) -> Binding:
    source, answer = (f"{s}.csv" for s in draw.stems(rng, 2))
    rows, (city, other) = stock(rng, 8), draw.cities(rng, 2)
    for index, row in enumerate(rows[1:]):
        row[1] = city if index % 3 == 0 else other
    wanted = [row for row in rows if row[1] == city]
    return Binding(
        slots={"source": source, "answer": answer, "city": city},
        wordings=(
            "Save the rows of Documents/{source} whose City is {city}, without the header, as {answer} on the Desktop.",
            "Please copy all {city} rows from Documents/{source} into a new file {answer} on the "
            "Desktop, no header row.",
            "Make {answer} on the Desktop with only those rows of Documents/{source} that are about {city}, no header.",
        ),
        files={f"Documents/{source}": as_csv(rows)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        post=(
            Post(
                "rows",
                "The file has exactly those rows.",
                (check("csv_is", path=f"Desktop/{answer}", rows=_strings(wanted)),),
            ),
        ),
        terminal=steps((f"Save the rows of {city}", f"grep ,{city}, ~/Documents/{source} > ~/Desktop/{answer}")),
        mutants={
            "other city": f"grep ,{other}, ~/Documents/{source} > ~/Desktop/{answer}",
            "all rows": f"cp ~/Documents/{source} ~/Desktop/{answer}",
            "items only": f"grep ,{city}, ~/Documents/{source} | cut -d, -f1 > ~/Desktop/{answer}",
        },
        equivalents={"with awk": f"awk -F, '$2==\"{city}\"' ~/Documents/{source} > ~/Desktop/{answer}"},
    )


def _strings(rows: Sequence[Sequence[str | int]]) -> list[JsonValue]:
    return [[str(value) for value in row] for row in rows]


NAME, NUMBER, SECRET = Slot("name"), Slot("number"), Slot("number", nonce=True)
_CALC = ("the file's name (desktop icon)", "the cell's address, role `table cell` (Calc)")

FAMILIES = (
    Family(
        "sheets.set-cell",
        "Set a cell",
        ("calc", "cell", "set"),
        "sheets",
        "office",
        ("libreoffice_calc",),
        {"name": NAME, "at": NAME, "value": NUMBER},
        _set_cell,
        requires_pip=("openpyxl",),
        gui_names=_CALC,
    ),
    Family(
        "sheets.rename-sheet",
        "Rename a sheet",
        ("calc", "sheet", "rename"),
        "sheets",
        "office",
        ("libreoffice_calc",),
        {"name": NAME, "title": NAME},
        _rename_sheet,
        requires_pip=("openpyxl",),
        held_out=True,
    ),
    Family(
        "csv.add-row",
        "Append a row",
        ("csv", "row", "append"),
        "sheets",
        "office",
        ("terminal",),
        {"name": NAME, "item": NAME, "city": NAME, "quantity": NUMBER, "price": NUMBER},
        _add_row,
    ),
    Family(
        "csv.sum",
        "Add up a column",
        ("csv", "column", "sum"),
        "sheets",
        "professional",
        ("terminal",),
        {"source": NAME, "answer": NAME, "head": NAME, "total": SECRET},
        _sum,
    ),
    Family(
        "csv.cut",
        "Extract a column",
        ("csv", "column", "extract"),
        "sheets",
        "professional",
        ("terminal",),
        {"source": NAME, "answer": NAME, "head": NAME},
        _cut,
    ),
    Family(
        "csv.lookup",
        "Look up a value",
        ("csv", "cell", "lookup"),
        "sheets",
        "professional",
        ("terminal",),
        {"source": NAME, "answer": NAME, "item": NAME, "price": SECRET},
        _lookup,
    ),
    Family(
        "csv.filter",
        "Filter rows",
        ("csv", "rows", "filter"),
        "sheets",
        "professional",
        ("terminal",),
        {"source": NAME, "answer": NAME, "city": NAME},
        _filter,
        held_out=True,
    ),
)
