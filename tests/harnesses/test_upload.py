"""What comes in through a browser: read in memory, and refused before anything of it is kept."""

from __future__ import annotations

import io
import stat
import zipfile

import pytest

from harnesses.tree import HarnessError, read_tree, seed_path, tree_files, tree_id
from harnesses.upload import MAX_UPLOAD, read_folder, read_zip

BETA1 = tree_files(read_tree(seed_path("beta1")))


def zipped(files: dict[str, bytes], top: str = "", mode: int = 0o644, kind: int = stat.S_IFREG) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in files.items():
            entry = zipfile.ZipInfo(top + path)
            entry.create_system, entry.external_attr = 3, (kind | mode) << 16
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return data.getvalue()


@pytest.mark.parametrize("top", ["", "my-harness/"])
def test_a_zip_of_a_harness_is_that_harness_with_or_without_its_folder(top: str) -> None:
    assert tree_id(read_zip(zipped(BETA1, top))) == tree_id(BETA1)


def test_a_zip_keeps_which_files_are_programs() -> None:
    tool = {"files/tool.py": b"print()\n"}
    assert read_zip(zipped(tool, mode=0o755)).executable == {"files/tool.py"}
    assert not read_zip(zipped(tool)).executable


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no zip at all", "the zip: can't be read"),
        (zipped({"a": b""})[:-30], "the zip: can't be read"),
        (b"x" * (MAX_UPLOAD + 1), "the zip: expected at most 1,000,000 bytes"),
        (zipped({"files/big": bytes(MAX_UPLOAD + 1)}), "the unpacked files: expected at most 1,000,000 bytes"),
        (zipped({"files/l": b"/etc/passwd"}, kind=stat.S_IFLNK), "files/l: expected a plain file, got a symbolic link"),
        (zipped({"files/p": b""}, kind=stat.S_IFIFO), "files/p: expected a plain file, got a special one"),
        (zipped({"../out": b""}), "'../out': expected a relative path"),
        (zipped({"/etc/out": b""}), "'/etc/out': expected a relative path"),
        (zipped({f"files/{n}": b"" for n in range(501)}), "expected at most 500 files, got 501"),
        (zipped({}), "expected the files of a harness, got none"),
    ],
    ids=["junk", "torn", "large", "bomb", "link", "pipe", "up", "absolute", "many", "empty"],
)
def test_a_zip_that_is_none_or_leads_out_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(HarnessError, match=message.replace(".", r"\.")):
        read_zip(data)


def test_what_a_zip_says_of_its_own_size_is_not_believed() -> None:
    data = bytearray(zipped({"files/big": bytes(5 * MAX_UPLOAD)}))
    real = (5 * MAX_UPLOAD).to_bytes(4, "little")
    for at in range(len(data) - 4):
        if data[at : at + 4] == real:
            data[at : at + 4] = (10).to_bytes(4, "little")
    with pytest.raises(HarnessError):
        read_zip(bytes(data))


def test_a_folder_is_taken_by_its_paths_and_its_git_is_left_out() -> None:
    sent = {f"my-harness/{path}": data for path, data in BETA1.items()}
    assert tree_id(read_folder(sent | {"my-harness/.git/config": b"[core]"})) == tree_id(BETA1)
    with pytest.raises(HarnessError, match="the directory: expected at most"):
        read_folder({"a/b": bytes(MAX_UPLOAD), "a/c": b"x"})
    with pytest.raises(HarnessError, match="expected a relative path"):
        read_folder({"a/../../etc/x": b""})
