"""What an author left, taken apart: a frozen home is read defensively, a manifest strictly."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from evolver.authors.claims import Known, read_manifest
from evolver.authors.gate import Refused
from evolver.authors.home import Home, read_home
from evolver.controls import home_tar
from harnesses.tree import MAX_BYTES, MAX_FILES, HarnessError, harness_from_files

KNOWN = Known(frozenset({"a.task-1000", "b.task-1000"}), frozenset({"calc", "files"}))
PLAIN = {
    "why": "w",
    "edits": [{"what": "e", "predicted_flips": [], "predicted_regressions": []}],
    "expected_token_change": 0,
    "expected_channel_change": {},
}


def packed(*entries: tuple[str, bytes, dict[str, object]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data, fields in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            for field, value in fields.items():
                setattr(entry, field, value)
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def test_the_folder_and_the_manifest_are_read_and_nothing_else() -> None:
    home = read_home(
        packed(
            ("harness/scaffold.toml", b"max_steps = 9\n", {}),
            ("harness/files/run", b"", {"mode": 0o755}),
            ("harness/.gitignore", b"*", {}),
            ("harness/.git/config", b"[core]", {}),
            ("harness2/x", b"no", {}),
            ("Desktop/harness/x", b"no", {}),
            ("manifest.json", b"{}", {}),
            (".witness", b"no", {}),
        )
    )
    assert dict(home.tree) == {"scaffold.toml": b"max_steps = 9\n", "files/run": b"", ".gitignore": b"*"}
    assert home.tree.executable == {"files/run"} and home.manifest == b"{}" and home.faults == ()
    assert read_home(home_tar({})) == Home(home.tree.__class__({}), None)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (("harness/x", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}), "a symbolic link"),
        (("harness/x", b"", {"type": tarfile.LNKTYPE, "linkname": "harness/y"}), "a hard link (copy it instead)"),
        (("harness/x", b"", {"type": tarfile.FIFOTYPE}), "a folder or a special file"),
        (("harness/x", b"", {"type": tarfile.CHRTYPE}), "a folder or a special file"),
        (("harness", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"}), "no folder"),
        (("harness", b"text", {}), "no folder"),
        (("harness/a\nb", b"", {}), "named with characters that can't be printed"),
        (("harness/\udcff", b"", {}), "named with characters that can't be printed"),
        (("harness/" + "d/" * 30 + "x", b"", {}), "more than 20 folders deep"),
        (("manifest.json", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}), "a symbolic link"),
        (("manifest.json", b"x" * 200_001, {}), "larger than 200,000 bytes"),
    ],
)
def test_what_is_no_plain_file_is_a_fault_and_not_read(entry: tuple[str, bytes, dict[str, object]], said: str) -> None:
    home = read_home(packed(("harness/scaffold.toml", b"", {}), entry))
    assert [said in fault for fault in home.faults] == [True]
    assert dict(home.tree) == {"scaffold.toml": b""} and home.manifest is None
    json.dumps(home.faults).encode()
    "".join(home.faults).encode()


@pytest.mark.parametrize("path", ["harness/../x", "harness//etc/x", "harness/./x", "harness/files/.git/x"])
def test_a_path_out_of_the_folder_is_no_path_of_a_harness(path: str) -> None:
    home = read_home(packed((path, b"", {})))
    with pytest.raises(HarnessError, match="expected a relative path of plain names"):
        harness_from_files(home.tree)


@pytest.mark.parametrize(
    "entries",
    [[(f"harness/files/{n}", b"", {}) for n in range(MAX_FILES + 1)], [("harness/files/x", bytes(MAX_BYTES + 1), {})]],
)
def test_too_much_is_a_fault_and_leaves_no_tree(entries: list[tuple[str, bytes, dict[str, object]]]) -> None:
    home = read_home(packed(("manifest.json", b"{}", {}), *entries))
    assert not home.tree and home.manifest == b"{}" and "expected at most" in home.faults[0]


def refused(manifest: object) -> str:
    data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    with pytest.raises(Refused) as caught:
        read_manifest(data, KNOWN)
    return "\n".join(caught.value.reasons)


def edit(**fields: object) -> dict[str, object]:
    return {**PLAIN, "edits": [{**PLAIN["edits"][0], **fields}]}  # type: ignore[index,dict-item]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (b"", "expected one JSON object"),
        (b"\xff", "expected one JSON object"),
        (b"[]", "expected one JSON object: it is no object"),
        (b'{"why": "a", "why": "b"}', "a key occurs twice"),
        (b'{"why": NaN}', "NaN is not JSON"),
        (b'{"a":' * 50_000, "nested too deeply"),
        ({k: v for k, v in PLAIN.items() if k != "why"}, "why: missing"),
        ({**PLAIN, "components": ["P"]}, "components: unknown field"),
        ({**PLAIN, "edits": []}, "edits: expected"),
        ({**PLAIN, "expected_token_change": "less"}, "expected_token_change: expected a number"),
        ({**PLAIN, "expected_token_change": -2}, "expected_token_change: expected a number"),
        ({**PLAIN, "expected_channel_change": {"calc": 2}}, "expected_channel_change"),
        ({**PLAIN, "expected_channel_change": {"word": 0.1}}, "expected apps of dev (calc, files), got 'word'"),
        ({**PLAIN, "edits": [{"what": "e", "predicted_flips": []}]}, "edits.0.predicted_regressions: missing"),
        (edit(predicted_flips=[{"task_id": "a.task-1000", "probability": True}]), "probability: expected a number"),
        (edit(predicted_flips=[{"task_id": "a.task-1000", "probability": 1.1}]), "probability: expected a number"),
        (
            edit(predicted_flips=[{"task_id": "c", "probability": 1}]),
            "edits.0.predicted_flips.0.task_id: expected a task",
        ),
        (
            edit(
                predicted_flips=[{"task_id": "a.task-1000", "probability": 1}],
                predicted_regressions=[{"task_id": "a.task-1000", "probability": 0}],
            ),
            "expected each task once in all, got 'a.task-1000' 2 times",
        ),
    ],
)
def test_a_manifest_that_is_not_exactly_one_names_the_field(manifest: object, said: str) -> None:
    assert said in refused(manifest)


def test_a_missing_manifest_says_where_it_belongs() -> None:
    with pytest.raises(Refused, match=r"manifest.json: missing; expected it in /home/user"):
        read_manifest(None, KNOWN)


def test_claims_of_each_edit_are_kept_with_it() -> None:
    flips = [{"task_id": "a.task-1000", "probability": 0.5}]
    two = {**PLAIN, "edits": [*edit(what="one", predicted_flips=flips)["edits"], *edit(what="two")["edits"]]}  # type: ignore[misc]
    found = read_manifest(json.dumps({**two, "expected_channel_change": {"calc": -0.5}}).encode(), KNOWN)
    assert found.edits == ("one", "two") and found.expected_channel_change == {"calc": -0.5}
    assert [(f.task_id, f.probability, f.edit) for f in found.predicted_flips] == [("a.task-1000", 0.5, "one")]
