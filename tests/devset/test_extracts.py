"""Files that an agent left are read within a bound, and a broken one is no text."""

from __future__ import annotations

import io
import zipfile

import pytest

from devset.extracts import LONGEST, text_of


def packed(xml: bytes, compression: int) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", compression) as archive:
        archive.writestr("word/document.xml", xml)
    return whole.getvalue()


def test_a_document_gives_its_words_and_a_text_itself() -> None:
    assert text_of(packed(b"<w>one</w><w>two &amp; three</w>", zipfile.ZIP_DEFLATED)) == "one\ntwo & three"
    assert text_of("größe".encode()) == "größe"
    assert text_of(b"\x00\xff") is None


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_unpacks_without_a_bound_is_not_unpacked(compression: int) -> None:
    bomb = packed(b"<w>" + b"a" * 20_000_000 + b"</w>", compression)
    assert len(bomb) < 10_000 and text_of(bomb) is None


def test_a_deflated_bomb_is_cut_at_the_bound() -> None:
    found = text_of(packed(b"<w>" + b"a " * 20_000_000 + b"</w><w>end</w>", zipfile.ZIP_DEFLATED))
    assert found is not None and len(found) <= LONGEST and "end" not in found


def test_a_corrupt_document_is_no_text() -> None:
    data = bytearray(packed(bytes(range(256)) * 200, zipfile.ZIP_DEFLATED))
    start = data.index(b"document.xml") + 12
    data[start : start + 40] = b"\xff" * 40
    assert text_of(bytes(data)) is None
