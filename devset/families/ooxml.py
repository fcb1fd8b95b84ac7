"""The office files that tasks start from, written by hand so that the same slots give the same bytes everywhere.

Office libraries stamp times and their own version into what they save, which would change every task hash with them.
Packages are stored uncompressed for the same reason (deflate differs between zlib builds).
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from xml.sax.saxutils import escape

Value = str | int | float
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument."
_A = "http://schemas.openxmlformats.org/drawingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SLIDE = "http://schemas.openxmlformats.org/presentationml/2006/main"


def _package(parts: dict[str, str | bytes], types: dict[str, str], main: str) -> bytes:
    overrides = "".join(
        f'<Override PartName="/{name}" ContentType="{_TYPE}{kind}+xml"/>' for name, kind in types.items()
    )
    content = (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Default Extension="png" ContentType="image/png"/>{overrides}</Types>'
    )
    whole = {"[Content_Types].xml": content, "_rels/.rels": _rels([("officeDocument", main)]), **parts}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, part in whole.items():
            data = part if isinstance(part, bytes) else (_HEAD + part).encode()
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def _rels(targets: Sequence[tuple[str, str]]) -> str:
    items = "".join(
        f'<Relationship Id="rId{i}" Type="{_R}/{kind}" Target="{target}"/>'
        for i, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{items}</Relationships>'


def column(index: int) -> str:
    """0 → A, 25 → Z (the tasks' sheets are narrower than that)."""
    return chr(ord("A") + index)


def xlsx(sheets: dict[str, Sequence[Sequence[Value]]]) -> bytes:
    """A workbook: sheet name → rows of strings and numbers."""
    parts: dict[str, str | bytes] = {}
    types = {"xl/workbook.xml": "spreadsheetml.sheet.main"}
    for number, rows in enumerate(sheets.values(), 1):
        body = "".join(f'<row r="{r}">{_cells(r, row)}</row>' for r, row in enumerate(rows, 1))
        name = f"xl/worksheets/sheet{number}.xml"
        cols = '<cols><col min="1" max="8" width="16" customWidth="1"/></cols>'
        parts[name] = f'<worksheet xmlns="{_SHEET}">{cols}<sheetData>{body}</sheetData></worksheet>'
        types[name] = "spreadsheetml.worksheet"
    listed = "".join(f'<sheet name="{escape(n)}" sheetId="{i}" r:id="rId{i}"/>' for i, n in enumerate(sheets, 1))
    parts["xl/workbook.xml"] = f'<workbook xmlns="{_SHEET}" xmlns:r="{_R}"><sheets>{listed}</sheets></workbook>'
    parts["xl/_rels/workbook.xml.rels"] = _rels(
        [("worksheet", f"worksheets/sheet{i + 1}.xml") for i in range(len(sheets))]
    )
    return _package(parts, types, "xl/workbook.xml")


def _cells(row_number: int, row: Sequence[Value]) -> str:
    found = []
    for index, value in enumerate(row):
        at = f"{column(index)}{row_number}"
        if isinstance(value, str):
            found.append(f'<c r="{at}" t="inlineStr"><is><t>{escape(value)}</t></is></c>')
        else:
            found.append(f'<c r="{at}"><v>{value}</v></c>')
    return "".join(found)


def docx(paragraphs: Sequence[str], picture: bytes | None = None) -> bytes:
    """A document: one paragraph per text; `picture` (PNG, 480 x 120 px) comes last."""
    body = "".join(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in paragraphs)
    parts: dict[str, str | bytes] = {}
    if picture is not None:
        body += _drawing()
        parts["word/media/image1.png"] = picture
        parts["word/_rels/document.xml.rels"] = _rels([("image", "media/image1.png")])
    margins = " ".join(f'w:{side}="1134"' for side in ("top", "right", "bottom", "left"))
    page = f'<w:sectPr><w:pgSz w:w="11906" w:h="16838"/><w:pgMar {margins}/>'
    document = f'<w:document xmlns:w="{_WORD}" xmlns:r="{_R}"><w:body>{body}{page}</w:sectPr></w:body></w:document>'
    types = {"word/document.xml": "wordprocessingml.document.main"}
    return _package({"word/document.xml": document, **parts}, types, "word/document.xml")


def _drawing() -> str:
    wp = "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
    pic = "http://schemas.openxmlformats.org/drawingml/2006/picture"
    size = 'cx="4572000" cy="1143000"'
    return (
        f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{wp}"><wp:extent {size}/><wp:docPr id="1" name="Picture 1"/>'
        f'<a:graphic xmlns:a="{_A}"><a:graphicData uri="{pic}"><pic:pic xmlns:pic="{pic}"><pic:nvPicPr>'
        '<pic:cNvPr id="1" name="image1.png"/><pic:cNvPicPr/></pic:nvPicPr><pic:blipFill><a:blip r:embed="rId1"/>'
        '<a:stretch><a:fillRect/></a:stretch></pic:blipFill><pic:spPr><a:xfrm><a:off x="0" y="0"/>'
        f'<a:ext {size}/></a:xfrm><a:prstGeom prst="rect"><a:avLst/></a:prstGeom></pic:spPr></pic:pic>'
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )


def pptx(slides: Sequence[tuple[str, Sequence[str]]]) -> bytes:
    """A presentation: per slide its title and the lines of its body."""
    layout, master, theme = "slideLayouts/slideLayout1.xml", "slideMasters/slideMaster1.xml", "theme/theme1.xml"
    parts: dict[str, str | bytes] = {
        f"ppt/{theme}": _theme(),
        f"ppt/{master}": _master(),
        "ppt/slideMasters/_rels/slideMaster1.xml.rels": _rels(
            [("slideLayout", f"../{layout}"), ("theme", f"../{theme}")]
        ),
        f"ppt/{layout}": _part("sldLayout", 'type="obj"', _shape("title", "", []) + _shape("body", "", [])),
        "ppt/slideLayouts/_rels/slideLayout1.xml.rels": _rels([("slideMaster", f"../{master}")]),
    }
    types = {
        "ppt/presentation.xml": "presentationml.presentation.main",
        f"ppt/{master}": "presentationml.slideMaster",
        f"ppt/{layout}": "presentationml.slideLayout",
        f"ppt/{theme}": "theme",
    }
    for number, (title, body) in enumerate(slides, 1):
        name = f"ppt/slides/slide{number}.xml"
        parts[name] = _part("sld", "", _shape("title", title, []) + _shape("body", "", body))
        parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = _rels([("slideLayout", f"../{layout}")])
        types[name] = "presentationml.slide"
    listed = "".join(f'<p:sldId id="{256 + i}" r:id="rId{2 + i}"/>' for i in range(len(slides)))
    parts["ppt/presentation.xml"] = (
        f'<p:presentation xmlns:p="{_SLIDE}" xmlns:r="{_R}" xmlns:a="{_A}">'
        f"<p:sldMasterIdLst>"
        f'<p:sldMasterId id="2147483648" r:id="rId1"/></p:sldMasterIdLst>'
        f'<p:sldIdLst>{listed}</p:sldIdLst><p:sldSz cx="9144000" cy="6858000"/>'
        '<p:notesSz cx="6858000" cy="9144000"/></p:presentation>'
    )
    targets = [("slideMaster", master), *(("slide", f"slides/slide{i + 1}.xml") for i in range(len(slides)))]
    parts["ppt/_rels/presentation.xml.rels"] = _rels(targets)
    return _package(parts, types, "ppt/presentation.xml")


def _part(tag: str, attributes: str, shapes: str, after: str = "") -> str:
    group = '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
    return (
        f'<p:{tag} xmlns:p="{_SLIDE}" xmlns:r="{_R}" xmlns:a="{_A}" {attributes}><p:cSld><p:spTree>{group}{shapes}'
        f"</p:spTree></p:cSld>{after}</p:{tag}>"
    )


def _shape(kind: str, title: str, body: Sequence[str]) -> str:
    is_title = kind == "title"
    y, height = (457_200, 1_143_000) if is_title else (1_828_800, 4_114_800)
    number, name, holder = (2, "Title 1", 'type="title"') if is_title else (3, "Content 2", 'type="body" idx="1"')
    texts = [title] if is_title else list(body) or [""]
    paragraphs = "".join(f"<a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p>" if text else "<a:p/>" for text in texts)
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="{name}"/><p:cNvSpPr/>'
        f"<p:nvPr><p:ph {holder}/></p:nvPr></p:nvSpPr>"
        f'<p:spPr><a:xfrm><a:off x="457200" y="{y}"/><a:ext cx="8229600" cy="{height}"/></a:xfrm>'
        f'<a:prstGeom prst="rect"><a:avLst/></a:prstGeom></p:spPr>'
        f"<p:txBody><a:bodyPr/><a:lstStyle/>{paragraphs}</p:txBody></p:sp>"
    )


def _master() -> str:
    colours = " ".join(f'accent{i}="accent{i}"' for i in range(1, 7))
    after = (
        f'<p:clrMap bg1="lt1" tx1="dk1" bg2="lt2" tx2="dk2" {colours} hlink="hlink" folHlink="folHlink"/>'
        '<p:sldLayoutIdLst><p:sldLayoutId id="2147483649" r:id="rId1"/></p:sldLayoutIdLst>'
    )
    return _part("sldMaster", "", _shape("title", "", []) + _shape("body", "", []), after)


def _theme() -> str:
    names = ["dk1", "lt1", "dk2", "lt2", *(f"accent{i}" for i in range(1, 7)), "hlink", "folHlink"]
    values = [
        "000000",
        "FFFFFF",
        "1F497D",
        "EEECE1",
        "4F81BD",
        "C0504D",
        "9BBB59",
        "8064A2",
        "4BACC6",
        "F79646",
        "0000FF",
        "800080",
    ]
    colours = "".join(f'<a:{n}><a:srgbClr val="{v}"/></a:{n}>' for n, v in zip(names, values, strict=True))
    font = '<a:latin typeface="Liberation Sans"/><a:ea typeface=""/><a:cs typeface=""/>'
    fill = '<a:solidFill><a:schemeClr val="phClr"/></a:solidFill>' * 3
    lines = '<a:ln w="9525"><a:solidFill><a:schemeClr val="phClr"/></a:solidFill></a:ln>' * 3
    effects = "<a:effectStyle><a:effectLst/></a:effectStyle>" * 3
    return (
        f'<a:theme xmlns:a="{_A}" name="Plain"><a:themeElements><a:clrScheme name="Plain">{colours}</a:clrScheme>'
        f'<a:fontScheme name="Plain"><a:majorFont>{font}</a:majorFont><a:minorFont>{font}</a:minorFont></a:fontScheme>'
        f'<a:fmtScheme name="Plain"><a:fillStyleLst>{fill}</a:fillStyleLst><a:lnStyleLst>{lines}</a:lnStyleLst>'
        f"<a:effectStyleLst>{effects}</a:effectStyleLst><a:bgFillStyleLst>{fill}</a:bgFillStyleLst></a:fmtScheme>"
        "</a:themeElements></a:theme>"
    )


# 5 x 7 dot patterns, a row per 5 bits, of the characters that codes in pictures are made of (no 0/O, 1/I, 5/S, 8/B)
_DOTS = {
    "2": "01110 10001 00001 00110 01000 10000 11111", "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010", "6": "01110 10000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000", "9": "01110 10001 10001 01111 00001 00001 01110",
    "A": "01110 10001 10001 11111 10001 10001 10001", "C": "01111 10000 10000 10000 10000 10000 01111",
    "E": "11111 10000 10000 11110 10000 10000 11111", "F": "11111 10000 10000 11110 10000 10000 10000",
    "H": "10001 10001 10001 11111 10001 10001 10001", "K": "10001 10010 10100 11000 10100 10010 10001",
    "L": "10000 10000 10000 10000 10000 10000 11111", "P": "11110 10001 10001 11110 10000 10000 10000",
    "T": "11111 00100 00100 00100 00100 00100 00100", "X": "10001 10001 01010 00100 01010 10001 10001",
}  # fmt: skip
PICTURE_ALPHABET = "".join(_DOTS)


def picture_of(code: str) -> bytes:
    """A PNG of 480 x 120 pixels that shows `code` (at most 9 characters of `PICTURE_ALPHABET`)."""
    dot, width, height = 8, 480, 120
    left, top = (width - len(code) * 6 * dot) // 2, (height - 7 * dot) // 2
    rows = [bytearray(b"\xff" * width) for _ in range(height)]
    for position, character in enumerate(code):
        for y, bits in enumerate(_DOTS[character].split()):
            for x, bit in enumerate(bits):
                for line in range(dot) if bit == "1" else ():
                    start = left + (position * 6 + x) * dot
                    rows[top + y * dot + line][start : start + dot] = b"\x20" * dot
    raw = b"".join(b"\0" + bytes(row) for row in rows)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(tag, data)
        for tag, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
            (b"IDAT", zlib.compress(raw, 0)),
            (b"IEND", b""),
        )
    )


def _chunk(tag: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))
