"""What can flow from one skill into another, in words: the value that a skill leaves behind, the slots that take one.

Data, keyed by family. A family that is named here takes part in dataflow; any other one is composed side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "word", "text", "phone"]  # a word has no blank in it
ALL, LAST = "cat {path}", "tail -n 1 {path}"


@dataclass(frozen=True)
class Output:
    """What a skill leaves behind: templates over its slots.

    `phrase` names it in an instruction, `value` is what it comes to, and `read` is the shell command that reads it from
    `path` (relative to the home), where the skill wrote it.
    """

    kind: Kind
    phrase: str
    value: str
    path: str
    read: str = ALL


@dataclass(frozen=True)
class Input:
    """Takes what another skill left behind into one slot: `wordings` say {value} where that is named, and every slot
    that the family's own wordings say."""

    kinds: tuple[Kind, ...]
    wordings: tuple[str, ...]


ANY: tuple[Kind, ...] = ("number", "word", "text", "phone")
WORDS: tuple[Kind, ...] = ("word", "text")

OUTPUTS: dict[str, Output] = {
    "csv.sum": Output("number", "that total", "{total}", "Desktop/{answer}"),
    "csv.lookup": Output("number", "the price of {item}", "{price}", "Desktop/{answer}"),
    "web.compare": Output("number", "that lower price of {item}", "{lower}", "Desktop/{notes}", LAST),
    "web.phone": Output("phone", "the phone number of {who}", "{phone}", "Desktop/{notes}", LAST),
    "files.largest": Output("word", "the name of that largest file", "{largest}", "Desktop/{answer}"),
    "files.find-text": Output("word", "the name of the file with {code}", "{wanted}", "Desktop/{answer}"),
    "develop.git-author": Output("word", "the name of that author", "{wanted}", "Desktop/{answer}"),
    "cross.sheet-to-text": Output("word", "the code of {who}", "{code}", "Desktop/{target}", LAST),
    "web.reveal": Output("word", "the code from that page", "{code}", "Desktop/{notes}", LAST),
    "cross.ticket-row": Output("text", "the row of that ticket", "{ticket},{who}", "Desktop/{answer}"),
}

INPUTS: dict[tuple[str, str], Input] = {
    ("text.append", "line"): Input(
        ANY,
        (
            "Add {value} as a new last line to the file {name} on the Desktop.",
            "Append {value} to {name} on the Desktop, on a line of its own at the end.",
        ),
    ),
    ("text.write", "line"): Input(
        ANY,
        (
            "Create a text file {name} in Documents with two lines: first {value}, and below it the first line of "
            "{source}, which is in Documents too.",
            "Make a note {name} in the Documents folder. Its first line is {value}, its second what the first line "
            "of {source} there says.",
        ),
    ),
    ("text.replace", "new"): Input(
        WORDS,
        (
            "In the file {name} on the Desktop, put {value} wherever it says {old}.",
            "Replace every {old} in {name} on the Desktop by {value}.",
        ),
    ),
    ("docs.append", "line"): Input(
        ANY,
        (
            "Add a last paragraph with {value} to the document {name} on the Desktop and save it as docx.",
            "Write {value} as a new paragraph at the end of {name} on the Desktop, and save the document.",
        ),
    ),
    ("docs.replace", "new"): Input(
        WORDS,
        (
            "In the document {name} on the Desktop, put {value} wherever it says {old}, and save it as docx.",
            "Replace every {old} in the document {name} on the Desktop by {value} and save it in its format.",
        ),
    ),
    ("slides.title", "new"): Input(
        ANY,
        (
            "Make {value} the title of the first slide of {name} on the Desktop and save it as pptx.",
            "Slide 1 of {name} on the Desktop has no title yet. Use {value} as its title and save the presentation.",
        ),
    ),
    ("slides.add", "new"): Input(
        ANY,
        (
            "Add a last slide to {name} on the Desktop, with {value} as its title, and save it as pptx.",
            "The presentation {name} on the Desktop needs one more slide at its end. Its title is {value}. Save it.",
        ),
    ),
    ("sheets.set-cell", "value"): Input(
        ("number",),
        (
            "Put {value} into cell {at} of the spreadsheet {name} on the Desktop and save it in its format.",
            "Cell {at} of {name} on the Desktop must hold {value}. Save the workbook as xlsx.",
        ),
    ),
    ("sheets.rename-sheet", "title"): Input(
        ANY,
        (
            "Rename the sheet Sheet1 of {name} on the Desktop to {value} and save the file.",
            "Give the first sheet (Sheet1) of {name} on the Desktop a new name, {value}, and save it as xlsx.",
        ),
    ),
    ("develop.json-value", "value"): Input(
        ("number",),
        (
            "In the configuration Documents/{name}, set {key} of the section {section} to {value}. All other settings "
            "stay.",
            "Change the setting {section}.{key} in the file Documents/{name} to {value} and nothing else in it.",
        ),
    ),
    ("system.variable", "value"): Input(
        ("number", "word"),
        (
            "Add a line to ~/.profile that exports the variable {name} with {value} as its value. What the file sets "
            "already has to stay.",
        ),
    ),
    ("planner.phone", "phone"): Input(
        ("phone",),
        ("Put {value} into the contact of {who} in the address book Documents/{name}, in place of the old number.",),
    ),
}


def fits(source: str, target: str) -> str | None:
    """The slot of family `target` that takes what family `source` leaves behind; None where nothing fits."""
    output = OUTPUTS.get(source)
    if output is None:
        return None
    return next((slot for (name, slot), port in INPUTS.items() if name == target and output.kind in port.kinds), None)
