"""The keyboard: what is typed is what real applications hold, byte for byte, in time or not at all."""

from __future__ import annotations

import asyncio
import io
import time

import openpyxl
import pytest

from evolver.errors import BadAction
from evolver.protocols import Act, Sandbox
from tests.sandboxes.desk import at, browse, element, said, sheet, show, tidy, until

pytestmark = [pytest.mark.desktop, pytest.mark.asyncio(loop_scope="session")]

TYPED = "àÄß你好🙂 <>\"'`\\^~/_ -0.07 --flag (c) teh 1st\n\tthe end 👩‍👩‍👧 かな 한국어 𝄞 é\n\n- so"


async def save(box: Sandbox) -> None:
    await box.act(Act("key", keys="ctrl+s"))
    await box.screenshot(settle_s=5)


async def editor(box: Sandbox, name: str) -> None:
    await box.write(name, b"")
    await show(box, f"mousepad {name}", name)


async def held(box: Sandbox, name: str) -> str:
    """What a text file holds, without the byte order mark and the last line break that editors add."""
    return (await box.read(name)).decode("utf-8-sig").removesuffix("\n")


async def page_field(box: Sandbox) -> None:
    """A page with one field, which has the focus."""
    await browse(box, "<textarea aria-label=words cols=80 rows=20 onchange='say(\"text\", this.value)'></textarea>")
    await box.act(at("left_click", await element(box, "words")))


async def page_holds(box: Sandbox, text: str) -> None:
    async def arrived() -> bool:
        return await said(box, "text") == text

    await until(arrived, f"the page does not hold {text!r}")


async def test_s15_typing_is_byte_exact_in_an_editor(desk: Sandbox) -> None:
    await editor(desk, "notes.txt")
    await desk.act(Act("type", text=TYPED))
    await save(desk)
    assert await held(desk, "notes.txt") == TYPED


async def test_s15_typing_is_byte_exact_in_a_word_processor(desk: Sandbox) -> None:
    await desk.write("letter.txt", b"")
    await show(desk, "libreoffice --writer letter.txt", "letter.txt")
    await desk.act(Act("type", text=TYPED))
    await save(desk)
    assert await held(desk, "letter.txt") == TYPED


async def test_s15_typing_is_byte_exact_in_the_cells_of_a_sheet(desk: Sandbox) -> None:
    await desk.write("book.xlsx", sheet())
    await show(desk, "libreoffice --calc book.xlsx", "book.xlsx")
    first, second = TYPED.splitlines()[0], "👩‍👩‍👧 かな 한국어 𝄞 é - so"
    await desk.act(Act("type", text=f"{first}\t{second}\n{first}\n"))
    await save(desk)
    cells = openpyxl.load_workbook(io.BytesIO(await desk.read("book.xlsx"))).active
    assert [[cell.value for cell in row] for row in cells.rows] == [[first, second], [first, None]]


async def test_s15_typing_is_byte_exact_in_a_browser(desk: Sandbox) -> None:
    """Again and again: one that starts quickly is drawn before it takes keys."""
    text = TYPED.replace("\t", "")  # in a page, a tab leaves the field
    for _ in range(3):
        await page_field(desk)
        await desk.act(Act("type", text=text + "\t"))
        await page_holds(desk, text)
        await tidy(desk)


async def test_s16_punctuation_is_never_substituted_whatever_the_layout(desk: Sandbox) -> None:
    await editor(desk, "a.txt")
    await desk.act(Act("type", text="/_:" * 200))
    await desk.bash("setxkbmap de", timeout_s=5)  # the agent may; what is typed is still what was asked for
    await desk.act(Act("type", text="/_:zy" * 20))
    await desk.bash("setxkbmap us", timeout_s=5)
    await save(desk)
    assert await held(desk, "a.txt") == "/_:" * 200 + "/_:zy" * 20


LONG = ("".join(chr(0x4E00 + i) for i in range(300)) + "the quick brown fox, " * 60 + "àéîõü\n\t🙂") * 3


async def typed_in_time(box: Sandbox, text: str, limit_s: float = 90) -> None:
    """By default in a quarter of that; here other tests may be running beside."""
    assert len(text) > 4_700
    started = time.monotonic()
    await box.act(Act("type", text=text, timeout_s=limit_s))
    assert time.monotonic() - started < limit_s


async def test_s17_5000_characters_are_typed_in_time(desk: Sandbox) -> None:
    text = LONG[:5_000].strip()
    await editor(desk, "long.txt")
    await typed_in_time(desk, text)
    await save(desk)
    assert await held(desk, "long.txt") == text


async def test_s17_5000_characters_are_typed_into_a_word_processor_in_time(desk: Sandbox) -> None:
    """It lays out every character anew, which takes its time on a busy machine, and none may overtake another."""
    text = LONG[:5_000].strip()
    await desk.write("long.txt", b"")
    await show(desk, "libreoffice --writer long.txt", "long.txt")
    await typed_in_time(desk, text)
    await save(desk)
    assert await held(desk, "long.txt") == text


async def test_s17_5000_characters_are_typed_into_a_browser_in_time(desk: Sandbox) -> None:
    text = LONG[:5_000].strip().replace("\t", " ")
    await page_field(desk)
    await typed_in_time(desk, text + "\t")
    await page_holds(desk, text)


async def test_s17_what_cannot_be_typed_in_time_fails_and_nothing_of_it_comes_later(desk: Sandbox) -> None:
    await editor(desk, "late.txt")
    with pytest.raises(BadAction, match="nothing was typed"):
        await desk.act(Act("type", text="x" * 100_000))
    with pytest.raises(BadAction, match="control character"):
        await desk.act(Act("type", text="abc\x07"))
    await desk.exec("pkill -STOP mousepad", timeout_s=5)  # it hangs
    started = time.monotonic()
    with pytest.raises(BadAction, match="no more will be"):
        await desk.act(Act("type", text="0123456789" * 30, timeout_s=2))
    assert time.monotonic() - started < 4
    await desk.act(Act("mouse_move", x=5, y=5))  # the next action is not blocked
    await desk.exec("pkill -CONT mousepad", timeout_s=5)
    await desk.screenshot(settle_s=5)
    await desk.act(Act("type", text="|end"))
    await save(desk)
    begun, _, rest = (await held(desk, "late.txt")).partition("|")
    assert rest == "end" and len(begun) <= 40 and ("0123456789" * 30).startswith(begun)


async def test_s18_putting_text_on_the_clipboard_returns_at_once(desk: Sandbox) -> None:
    await editor(desk, "clip.txt")
    for run in (desk.bash, desk.exec):
        started = time.monotonic()
        ran = await run("printf 'pasted é🙂 ' | xclip -selection clipboard", timeout_s=20)
        assert (ran.exit_code, ran.timed_out) == (0, False) and time.monotonic() - started < 2
        await desk.act(Act("key", keys="ctrl+v"))
        await asyncio.sleep(0.5)
    await save(desk)
    assert await held(desk, "clip.txt") == "pasted é🙂 pasted é🙂 "
