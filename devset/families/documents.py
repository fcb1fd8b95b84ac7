"""Families of documents and slides: python-docx and python-pptx, or LibreOffice Writer and Impress."""

from __future__ import annotations

from random import Random

from devset.families import draw, gui
from devset.families.ooxml import docx, pptx
from devset.families.skill import Binding, Family, Post, Slot, check, steps
from devset.task import GuiTarget


def edit_docx(name: str, body: str) -> str:
    """A one-command edit of a document on the Desktop: `d` is the document."""
    return f"cd ~/Desktop && python3 -c \"import docx; d = docx.Document('{name}'); {body}; d.save('{name}')\""


def edit_pptx(name: str, body: str) -> str:
    """A one-command edit of a presentation on the Desktop: `p` is the presentation."""
    return f"cd ~/Desktop && python3 -c \"import pptx; p = pptx.Presentation('{name}'); {body}; p.save('{name}')\""


def _page(name: str) -> GuiTarget:
    """The open document in Writer."""
    return GuiTarget(name=f"{name.removesuffix('.docx')} - LibreOffice Document", role="document text")


def titles(rng: Random, count: int) -> list[str]:
    """Slide titles such as `Lamps in Lyon`."""
    pairs = zip(draw.items(rng, count), draw.cities(rng, count), strict=True)
    return [f"{item.capitalize()} in {city}" for item, city in pairs]


def _append(rng: Random) -> Binding:
    name, other = (f"{s}.docx" for s in draw.stems(rng, 2))
    *before, line = draw.sentences(rng, 4)
    return Binding(
        slots={"name": name, "line": line},
        wordings=(
            "Add a paragraph that says '{line}' at the end of the document {name} on the Desktop and save it as docx.",
            "Please open {name} on the Desktop, write '{line}' as a new last paragraph, and save the document.",
            "The document {name} on my Desktop needs one more paragraph at its end: '{line}'. Save it in its format.",
        ),
        files={f"Desktop/{name}": docx(before), f"Desktop/{other}": docx(draw.sentences(rng, 2))},
        writes=(f"Desktop/{name}",),
        pre=(check("paragraphs_are", path=f"Desktop/{name}", expected=[*before]),),
        post=(
            Post(
                "appended",
                "The paragraph comes last.",
                (check("paragraphs_are", path=f"Desktop/{name}", expected=[*before, line]),),
            ),
        ),
        terminal=steps((f"Append the paragraph to {name}", edit_docx(name, f"d.add_paragraph('{line}')"))),
        gui=(
            gui.double_click(gui.icon(name), f"Open {name} in Writer"),
            gui.click(_page(name), "Go to the end of the document", window=name),
            gui.key("ctrl+End"),
            gui.write("\n" + line, "Type the paragraph and save"),
            *gui.SAVE_OFFICE,
        ),
        mutants={
            "at the top": edit_docx(name, f"d.paragraphs[0].insert_paragraph_before('{line}')"),
            "other file": edit_docx(other, f"d.add_paragraph('{line}')"),
            "in the last paragraph": edit_docx(name, f"d.paragraphs[-1].add_run(' {line}')"),
            "plain text": f"echo '{line}' >> ~/Desktop/{name}.txt",
        },
        equivalents={"as a run": edit_docx(name, f"d.add_paragraph().add_run('{line}')")},
    )


def _replace(rng: Random) -> Binding:
    name, (old, new) = f"{draw.stem(rng)}.docx", draw.people(rng, 2)
    body = [line.replace(old, "Ada").replace(new, "Ada") for line in draw.sentences(rng, 2)]
    before = [f"Report by {old}", *body, f"Signed: {old}"]
    after = [line.replace(old, new) for line in before]
    change = f"[setattr(q, 'text', q.text.replace('{old}', '{new}')) for q in d.paragraphs]"
    return Binding(
        slots={"name": name, "old": old, "new": new},
        wordings=(
            "In the document {name} on the Desktop, replace every {old} by {new} and save it as docx.",
            "Please change all occurrences of {old} to {new} in {name}, which is on the Desktop, and "
            "save the document.",
            "The author changed: wherever {name} on the Desktop says {old}, it should say {new}. "
            "Save it in its format.",
        ),
        files={f"Desktop/{name}": docx(before)},
        writes=(f"Desktop/{name}",),
        pre=(check("paragraphs_are", path=f"Desktop/{name}", expected=[*before]),),
        post=(
            Post(
                "replaced",
                "Every occurrence is replaced.",
                (check("paragraphs_are", path=f"Desktop/{name}", expected=[*after]),),
            ),
        ),
        terminal=steps((f"Replace {old} by {new}", edit_docx(name, change))),
        mutants={
            "first only": edit_docx(name, f"d.paragraphs[0].text = '{after[0]}'"),
            "the other way round": edit_docx(name, change.replace(f"'{old}', '{new}'", f"'{new}', '{old}'")),
            "broken file": f"sed -i 's/{old}/{new}{new}/g' ~/Desktop/{name}",
        },
        equivalents={
            "ends only": edit_docx(name, f"d.paragraphs[0].text = '{after[0]}'; d.paragraphs[-1].text = '{after[-1]}'")
        },
    )


def _title(rng: Random) -> Binding:
    name, (new, second) = f"{draw.stem(rng)}.pptx", titles(rng, 2)
    lines = draw.items(rng, 2)
    return Binding(
        slots={"name": name, "new": new},
        wordings=(
            "The first slide of {name} on the Desktop has no title yet. Give it the title '{new}' and save it as pptx.",
            "Please open the presentation {name} on the Desktop, make '{new}' the title of slide 1, and save it.",
            "Slide 1 of {name} on my Desktop lacks a title. It should be '{new}'. Save it in its format.",
        ),
        files={f"Desktop/{name}": pptx([("", lines), (second, draw.items(rng, 2))])},
        writes=(f"Desktop/{name}",),
        pre=(check("slide_titles", path=f"Desktop/{name}", expected=["", second]),),
        post=(
            Post(
                "title",
                "Only that title changed.",
                (check("slide_titles", path=f"Desktop/{name}", expected=[new, second]),),
            ),
            Post(
                "body",
                "The slide's lines are as before.",
                (check("slide_body", path=f"Desktop/{name}", slide=1, expected=[*lines]),),
            ),
        ),
        terminal=steps((f"Set the title to {new}", edit_pptx(name, f"p.slides[0].shapes.title.text = '{new}'"))),
        gui=(
            gui.double_click(gui.icon(name), f"Open {name} in Impress"),
            # The title is empty because Impress obeys ctrl+a later than the letters that are typed after it.
            gui.double_click(GuiTarget(name="Title 1", role="panel"), f"Type the title {new}", window=name),
            gui.write(new),
            gui.key("Escape", "Leave the title and save"),
            *gui.SAVE_OFFICE,
        ),
        mutants={
            "second slide": edit_pptx(name, f"p.slides[1].shapes.title.text = '{new}'"),
            "in the body": edit_pptx(name, f"p.slides[0].placeholders[1].text = '{new}'"),
            "said twice": edit_pptx(name, f"p.slides[0].shapes.title.text = '{new} {new}'"),
        },
        equivalents={"by placeholder": edit_pptx(name, f"p.slides[0].placeholders[0].text_frame.text = '{new}'")},
    )


def _add_slide(rng: Random) -> Binding:
    name, (new, *old) = f"{draw.stem(rng)}.pptx", titles(rng, 3)
    files = {f"Desktop/{name}": pptx([(title, draw.items(rng, 2)) for title in old])}
    return Binding(
        slots={"name": name, "new": new},
        wordings=(
            "Add a slide with the title '{new}' at the end of {name} on the Desktop and save it as pptx.",
            "Please extend the presentation {name} on the Desktop by one last slide, titled '{new}', and save it.",
            "The talk {name} on my Desktop needs a new final slide. Its title is '{new}'. Save it in its format.",
        ),
        files=files,
        writes=(f"Desktop/{name}",),
        post=(
            Post(
                "slide", "The slide comes last.", (check("slide_titles", path=f"Desktop/{name}", expected=[*old, new]),)
            ),
        ),
        terminal=steps(
            (
                f"Add the slide {new}",
                edit_pptx(name, f"p.slides.add_slide(p.slide_layouts[0]).shapes.title.text = '{new}'"),
            )
        ),
        mutants={
            "renamed the last": edit_pptx(name, f"p.slides[1].shapes.title.text = '{new}'"),
            "no title": edit_pptx(name, "p.slides.add_slide(p.slide_layouts[0])"),
            "not a presentation": f"echo '{new}' > ~/Desktop/{name}",
        },
        equivalents={
            "in two moves": edit_pptx(
                name, f"s = p.slides.add_slide(p.slide_layouts[0]); s.placeholders[0].text = '{new}'"
            )
        },
    )


NAME, TEXT = Slot("name"), Slot("text")
_ICON = "the file's name (desktop icon)"

FAMILIES = (
    Family(
        "docs.append",
        "Append a paragraph",
        ("writer", "paragraph", "append"),
        "documents",
        "office",
        ("libreoffice_writer",),
        {"name": NAME, "line": TEXT},
        _append,
        requires_pip=("python-docx",),
        gui_names=(_ICON, "the file's stem + ` - LibreOffice Document`, role `document text` (Writer)"),
    ),
    Family(
        "docs.replace",
        "Replace a name in a document",
        ("writer", "document", "replace"),
        "documents",
        "office",
        ("libreoffice_writer",),
        {"name": NAME, "old": NAME, "new": NAME},
        _replace,
        requires_pip=("python-docx",),
    ),
    Family(
        "slides.title",
        "Give a slide its title",
        ("impress", "title", "set"),
        "documents",
        "office",
        ("libreoffice_impress",),
        {"name": NAME, "new": TEXT},
        _title,
        requires_pip=("python-pptx",),
        gui_names=(_ICON, "`Title 1`, role `panel`: the title's shape (Impress)"),
    ),
    Family(
        "slides.add",
        "Add a slide",
        ("impress", "slide", "add"),
        "documents",
        "office",
        ("libreoffice_impress",),
        {"name": NAME, "new": TEXT},
        _add_slide,
        requires_pip=("python-pptx",),
        held_out=True,
    ),
)
