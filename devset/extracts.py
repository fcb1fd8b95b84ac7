"""The words of a file, whatever wrote it: what a judge reads of a changed file and what near-duplicates share.

Nothing is executed and nothing is unpacked beyond a bound, so files that an agent left may be read.
"""

from __future__ import annotations

import html
import io
import re
import zipfile
import zlib

LONGEST = 2_000_000  # bytes of a file, or of all parts of a document unpacked, that are looked at
BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack without a limit, whatever is asked for
_RUN = re.compile(r">([^<>]+)<")
_NO_WORDS = re.compile(r"(^|/)(_rels|docProps|META-INF|theme|styles|settings|fontTable|meta|manifest)\b")


def text_of(data: bytes) -> str | None:
    """The text of a plain file, or the runs of text of a zipped office document, a line each; None for all else."""
    if data.startswith(b"PK\x03\x04"):
        return _document(data)
    try:
        text = data[:LONGEST].decode()
    except UnicodeDecodeError as error:
        if len(data) <= LONGEST or error.start < LONGEST - 4:  # a cut in the middle of a character is no other encoding
            return None
        text = data[: error.start].decode()
    return None if "\0" in text else text


def _document(data: bytes) -> str | None:
    """Text of a docx, xlsx, pptx, odt, ods or odp; None for another archive, or one that is broken."""
    found: list[str] = []
    left = LONGEST
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = [part for part in archive.infolist() if part.filename.endswith(".xml")]
            if any(part.compress_type not in BOUNDED for part in parts):
                return None
            for part in sorted(parts, key=lambda part: part.filename):
                if left > 0 and not _NO_WORDS.search(part.filename):
                    with archive.open(part) as opened:
                        unpacked = opened.read(left)
                    left -= len(unpacked)
                    xml = unpacked.decode("utf-8", "replace")
                    found += [html.unescape(run).strip() for run in _RUN.findall(xml) if run.strip()]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, ValueError, zlib.error):
        return None
    return "\n".join(found) if parts else None
