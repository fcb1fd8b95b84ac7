"""More families of tables: totals per group, a total in a workbook, a row that has to go."""

from __future__ import annotations

from random import Random

from devset.families import draw, gui
from devset.families.ooxml import Value, xlsx
from devset.families.sheets import as_csv, cells, openpyxl, stock
from devset.families.skill import Binding, Family, Post, Slot, check, steps
from devset.task import GuiTarget


def _pivot(rng: Random) -> Binding:
    source, answer = (f"{s}.csv" for s in draw.stems(rng, 2))
    rows = stock(rng, 9)
    towns = draw.cities(rng, 4)
    for number, row in enumerate(rows[1:]):
        row[1] = towns[number % 4]
    rng.shuffle(body := rows[1:])
    rows = [rows[0], *body]
    totals = [(town, sum(int(r[2]) for r in body if r[1] == town)) for town in sorted(towns)]
    wanted = [["City", "Quantity"], *([town, str(total)] for town, total in totals)]
    here, there = f"~/Documents/{source}", f"~/Desktop/{answer}"

    def grouped(column: int, order: str = "sort") -> str:
        add = f"awk -F, 'NR>1{{s[$2]+=${column}}}END{{for(c in s)print c\",\"s[c]}}'"
        return f"(echo City,Quantity; {add} {here} | {order}) > {there}"

    return Binding(
        slots={"source": source, "answer": answer},
        wordings=(
            "Add up the Quantity per City in Documents/{source} and save the result as {answer} on the Desktop, with "
            "the header City,Quantity, sorted by city.",
            "Please make a CSV file {answer} on the Desktop: columns City and Quantity, a row for each city of "
            "Documents/{source} with its total Quantity, cities from A to Z.",
            "I need the total Quantity of each City in Documents/{source}, in alphabetical order, as the table "
            "{answer} (City,Quantity) on the Desktop.",
        ),
        files={f"Documents/{source}": as_csv(rows)},
        writes=(f"Desktop/{answer}",),
        reads=(f"Documents/{source}",),
        post=(
            Post(
                "totals",
                "The table has the right totals.",
                (check("csv_is", path=f"Desktop/{answer}", rows=[[*row] for row in wanted]),),
            ),
        ),
        terminal=steps((f"Read {source}", f"head -3 {here}"), (f"Save the totals per city as {answer}", grouped(3))),
        mutants={
            "the price": grouped(4),
            "not sorted": grouped(3, "sort -r"),
            "without header": f"{grouped(3)}; sed -i 1d {there}",
            "not added up": f"(echo City,Quantity; tail -n +2 {here} | cut -d, -f2,3 | sort) > {there}",
        },
        equivalents={
            "in python": 'python3 -c "import collections, csv, sys; t = collections.Counter(); '
            "[t.update({r['City']: int(r['Quantity'])}) for r in csv.DictReader(open(sys.argv[1]))]; "
            "w = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL); w.writerow(['City', 'Quantity']); "
            f'w.writerows(sorted(t.items()))" {here} > {there}'
        },
    )


def _total(rng: Random) -> Binding:
    name, rows = f"{draw.stem(rng)}.xlsx", stock(rng, rng.randint(4, 8))
    letter, index = rng.choice([("C", 2), ("D", 3)])
    last, at, head = f"{letter}{len(rows)}", f"{letter}{len(rows) + 2}", str(rows[0][index])
    total = sum(int(row[index]) for row in rows[1:])
    wanted = {**cells(rows), at: total}
    span = f"s['{letter}'][1:{len(rows)}]"
    return Binding(
        slots={"name": name, "head": head, "at": at, "total": total},
        wordings=(
            "Add up the column {head} of the workbook {name} on the Desktop and put the total, as a number, into cell "
            "{at}. Save it as xlsx.",
            "Please work out the sum of {head} in {name} on the Desktop, type that number into {at}, and save the file "
            "in its format.",
            "Cell {at} of {name}, which is on the Desktop, should show the total of the {head} column. Enter it as a "
            "plain number and save.",
        ),
        files={f"Desktop/{name}": xlsx({"Stock": rows})},
        writes=(f"Desktop/{name}",),
        reads=(f"Desktop/{name}",),
        nonces={str(total): ""},
        post=(
            Post(
                "total",
                f"{at} holds the total, every other cell is as before.",
                (check("sheet_is", path=f"Desktop/{name}", sheet="Stock", cells=wanted),),
            ),
        ),
        terminal=steps(
            (f"Put the sum of {head} into {at}", openpyxl(name, f"s['{at}'] = sum(c.value for c in {span})"))
        ),
        gui=(
            gui.double_click(gui.icon(name), f"Open {name} in Calc"),
            gui.click(GuiTarget(name=last, role="table cell"), f"Go to {at}, below the last number", window=name),
            gui.key("Down"),
            gui.key("Down"),
            gui.write(f"{total}\n", f"Type {total} and save"),
            *gui.SAVE_OFFICE,
        ),
        mutants={
            "without the last row": openpyxl(name, f"s['{at}'] = sum(c.value for c in {span}[:-1])"),
            "as text": openpyxl(name, f"s['{at}'] = '{total}'"),
            "the number of rows": openpyxl(name, f"s['{at}'] = {len(rows) - 1}"),
            "a row too high": openpyxl(name, f"s['{letter}{len(rows) + 1}'] = {total}"),
        },
        equivalents={"typed by hand": openpyxl(name, f"s['{at}'] = {total}")},
    )


def _delete_row(rng: Random) -> Binding:
    name, rows = f"{draw.stem(rng)}.xlsx", stock(rng, 7)
    row = rng.randint(1, 6)
    item = str(rows[row][0])
    kept: list[list[Value]] = [list(r) for i, r in enumerate(rows) if i != row]
    find = f"[c.row for c in s['A'] if c.value == '{item}'][0]"
    return Binding(
        slots={"name": name, "item": item},
        wordings=(
            "Delete the whole row of {item} from the spreadsheet {name} on the Desktop, so that the rows below move "
            "up, and save it as xlsx.",
            "We no longer sell {item}. Please remove that row from {name} on the Desktop, without leaving a gap, and "
            "save the workbook.",
            "In {name}, which is on the Desktop, take out the complete row for {item}. The other rows close up; save "
            "the file in its format.",
        ),
        files={f"Desktop/{name}": xlsx({"Stock": rows})},
        writes=(f"Desktop/{name}",),
        pre=(check("sheet_is", path=f"Desktop/{name}", sheet="Stock", cells=cells(rows)),),
        post=(
            Post(
                "row",
                "That row is gone and the others have closed up.",
                (check("sheet_is", path=f"Desktop/{name}", sheet="Stock", cells=cells(kept)),),
            ),
        ),
        terminal=steps((f"Delete the row of {item}", openpyxl(name, f"s.delete_rows({find})"))),
        gui=(
            gui.double_click(gui.icon(name), f"Open {name} in Calc"),
            gui.click(GuiTarget(name=f"A{row + 1}", role="table cell"), f"Click the cell of {item}", window=name),
            gui.key("shift+space", "Select its row, delete it and save"),
            gui.key("ctrl+minus"),
            *gui.SAVE_OFFICE,
        ),
        mutants={
            "emptied": openpyxl(name, f"[setattr(c, 'value', None) for c in s[{row + 1}]]"),
            "the row below": openpyxl(name, f"s.delete_rows({find} + 1)"),
            "the first cell": openpyxl(name, f"s.cell({find}, 1).value = None"),
            "two rows": openpyxl(name, f"s.delete_rows({find}, 2)"),
        },
        equivalents={"by number": openpyxl(name, f"s.delete_rows({row + 1}, 1)")},
    )


NAME = Slot("name")
_GUI = ("the file's name (desktop icon)", "the cell's address, role `table cell` (Calc)")

FAMILIES = (
    Family(
        "csv.pivot",
        "Totals per group",
        ("csv", "groups", "sum"),
        "sheets",
        "professional",
        ("csv",),
        {"source": NAME, "answer": NAME},
        _pivot,
    ),
    Family(
        "sheets.total",
        "A total in a workbook",
        ("calc", "column", "sum"),
        "sheets",
        "office",
        ("libreoffice_calc",),
        {"name": NAME, "head": NAME, "at": NAME, "total": Slot("number", nonce=True)},
        _total,
        requires_pip=("openpyxl",),
        gui_names=_GUI,
    ),
    Family(
        "sheets.delete-row",
        "Delete a row",
        ("calc", "row", "delete"),
        "sheets",
        "office",
        ("libreoffice_calc",),
        {"name": NAME, "item": NAME},
        _delete_row,
        requires_pip=("openpyxl",),
        gui_names=_GUI,
        held_out=True,
    ),
)
