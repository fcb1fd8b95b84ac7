"""The run directory survives crashes, two writers, full disks, and whoever opens the wrong one."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evolver.config import Caps, OpenAISpec, RaceConfig, RunConfig, SandboxConfig
from evolver.errors import UsageError
from evolver.records import Evaluation, LedgerEntry, Scorecard
from evolver.report_page import write_page
from evolver.store import DuplicateRecord, Store, TornLine, new_run_id
from tests.evolver.rollouts import a_rollout
from tests.evolver.sample_run import ALPHA, candidate, card, evaluation, ledger, records, sample_run


def test_every_record_comes_back_equal(tmp_path: Path) -> None:
    sample_run(tmp_path / "run")
    again = Store.open(tmp_path / "run")
    for record in records():
        assert record in again.all(type(record))
    assert again.get(Scorecard, "r-1") == card(1, None, None)


def test_a_reader_follows_what_another_process_writes(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    store.append(ledger("mine"))
    code = """
        import sys; from pathlib import Path
        from tests.evolver.sample_run import ledger; from evolver.store import Store
        store = Store.open(Path(sys.argv[1]))
        for i in range(200): store.append(ledger(f"{sys.argv[2]}-{i}"))
    """
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    writers = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(store.path), name], env=env)
        for name in ("one", "two")
    ]
    for i in range(200):
        store.append(ledger(f"mine-{i}"))
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert len({entry.id for entry in store.all(LedgerEntry)}) == len(store.all(LedgerEntry)) == 601
    assert Store.open(store.path).all(LedgerEntry) == store.all(LedgerEntry)


def test_threads_may_share_a_store_directory(tmp_path: Path) -> None:
    path = sample_run(tmp_path / "run").path

    def write(number: int) -> None:
        Store.open(path).append(ledger(f"t-{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(64)))
    assert len(Store.open(path).all(LedgerEntry)) == 3 + 64


def test_s50_a_torn_last_line_is_ignored_with_a_warning_and_cut_off(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    log = store.path / "scorecards.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"rollout_id": "r-9", "key": {"pur')
    reader = Store.open(store.path)
    with pytest.warns(TornLine, match="scorecards.jsonl:3"):
        assert len(reader.all(Scorecard)) == 2
    with pytest.warns(TornLine):
        reader.append(card(9))
    lines = log.read_bytes().splitlines()
    assert log.read_bytes().startswith(whole) and len(lines) == 3 and json.loads(lines[2])["rollout_id"] == "r-9"


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_s50_a_record_torn_at_any_byte_is_written_again(tmp_path: Path, cut: int) -> None:
    store = sample_run(tmp_path / "run")
    log = store.path / "scorecards.jsonl"
    os.truncate(log, log.stat().st_size - cut)
    with pytest.warns(TornLine):
        Store.open(store.path).append(card(1, None, None))
    assert Store.open(store.path).all(Scorecard) == [card(0), card(1, None, None)]


def test_a_broken_line_elsewhere_names_file_and_line(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    log = store.path / "ledger.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b'{"id": 3}\n' + b"".join(lines[1:]))
    with pytest.raises(UsageError, match=r"ledger\.jsonl:2 is no LedgerEntry"):
        Store.open(store.path).all(LedgerEntry)


def test_the_same_record_twice_is_one_and_another_under_its_id_is_refused(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    before = (store.path / "scorecards.jsonl").read_bytes()
    Store.open(store.path).append(card(0))
    with pytest.raises(DuplicateRecord, match="r-0"):
        store.append(card(0, success=False))
    assert (store.path / "scorecards.jsonl").read_bytes() == before


def test_no_nan_reaches_the_disk(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    made = evaluation("d" * 40, "m", card(0) and store.all(Evaluation)[0].success)
    poisoned = made.model_copy(update={"seconds_per_task": float("nan")})
    with pytest.raises(ValueError, match="NaN"):
        store.append(poisoned)
    assert "NaN" not in (store.path / "evaluations.jsonl").read_text()


def test_s49_resume_by_the_same_config_and_refuse_another(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    before = {p.name: p.read_bytes() for p in store.path.iterdir() if p.is_file()}
    again = Store.create(store.path, RunConfig())
    assert again.run_id == store.run_id and len(again.all(Scorecard)) == 2
    with pytest.raises(UsageError, match=r"race\.alpha: 0\.1 → 0\.2.*seed: 0 → 7|seed: 0 → 7.*race") as error:
        Store.create(store.path, RunConfig(seed=7, race=RaceConfig(alpha=0.2)))
    assert "--fresh" in str(error.value)
    assert {p.name: p.read_bytes() for p in store.path.iterdir() if p.is_file()} == before


def test_a_run_without_a_record_takes_any_config(tmp_path: Path) -> None:
    Store.create(tmp_path / "run", RunConfig(seed=1))
    store = Store.create(tmp_path / "run", RunConfig(seed=2))
    assert store.config.seed == 2 == Store.open(tmp_path / "run").config.seed
    store.append(card())
    with pytest.raises(UsageError, match="seed: 2 → 3"):
        Store.create(tmp_path / "run", RunConfig(seed=3))


def test_a_teacher_that_has_played_nothing_may_be_mended(tmp_path: Path) -> None:
    """An endpoint that can't be reached, or refuses, is found out once the root is on record."""
    urls = ("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1")
    teachers = (OpenAISpec(kind="openai", model="m", base_url=url) for url in urls)
    before, mended = (RunConfig(teacher=teacher, allow_unpriced=True) for teacher in teachers)
    store = Store.create(tmp_path / "run", before)
    store.append(candidate("alpha", ALPHA, None))
    assert Store.create(store.path, mended).config == mended
    with pytest.raises(UsageError, match="seed: 0 → 1"):
        Store.create(store.path, mended.model_copy(update={"seed": 1}))
    store.append(a_rollout())
    with pytest.raises(UsageError, match=r"teacher\.base_url"):
        Store.create(store.path, before)


def test_e17_a_raised_cap_and_more_workers_resume_the_same_run(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run", RunConfig(caps=Caps(tokens=10)))
    more = RunConfig(caps=Caps(tokens=99), sandbox=SandboxConfig(workers=4))
    assert Store.create(store.path, more).config == more
    again = Store.open(store.path)
    assert again.config == more and again.run_id == store.run_id and len(again.all(Scorecard)) == 2


def test_a_directory_of_another_version_is_named_and_left_alone(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    file = store.path / "run.json"
    file.write_text(file.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    before = file.read_bytes()
    for attempt in (lambda: Store.open(store.path), lambda: Store.create(store.path, RunConfig())):
        with pytest.raises(UsageError, match="version 2, this program reads version 1"):
            attempt()
    assert file.read_bytes() == before


def test_a_directory_of_something_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="no run directory"):
        Store.create(tmp_path, RunConfig())
    with pytest.raises(UsageError, match="is a file"):
        Store.create(tmp_path / "thesis.txt", RunConfig())
    with pytest.raises(UsageError, match="no run at"):
        Store.open(tmp_path / "nowhere")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_s51_run_ids_never_collide(tmp_path: Path) -> None:
    assert len({new_run_id() for _ in range(2_000)}) == 2_000

    def start(_: int) -> str:
        return Store.create(tmp_path / "run", RunConfig()).run_id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(16)))) == 1


def test_blobs_are_kept_once_by_content_and_damage_is_seen(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    sha256 = store.put_blob(b"pixels")
    inode = store.blob_path(sha256).stat().st_ino
    assert store.put_blob(b"pixels") == sha256 and store.blob_path(sha256).stat().st_ino == inode
    assert store.blob(sha256) == b"pixels"
    store.blob_path(sha256).write_bytes(b"pixelz")
    with pytest.raises(UsageError, match="damaged"):
        store.blob(sha256)
    with pytest.raises(UsageError, match="lacks blob"):
        store.blob("0" * 64)
    assert [p for p in store.path.rglob("*") if ".run" in p.name or p.name.startswith(f".{sha256}")] == []


def test_a_folder_is_synced_after_each_new_name_in_it(tmp_path: Path) -> None:
    code = """
        import sys; from pathlib import Path
        from evolver.config import RunConfig; from evolver.store import Store
        from tests.evolver.sample_run import ledger
        path_of = {"open": 0, "os.mkdir": 0, "os.rename": 1, "os.link": 1}
        sys.addaudithook(lambda event, args: event in path_of and print(event, args[path_of[event]]))
        store = Store.create(Path(sys.argv[1]), RunConfig())
        store.put_blob(b"pixels")
        store.append(ledger("one"))
    """
    run = tmp_path / "runs" / "run"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(run)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    events = done.stdout.splitlines()
    blob, log = Store.open(run).blob_path(hashlib.sha256(b"pixels").hexdigest()), run / "ledger.jsonl"
    made = [
        f"os.mkdir {run.parent}",
        f"os.mkdir {run}",
        f"os.link {run / 'run.json'}",
        f"os.mkdir {run / 'blobs'}",
        f"os.mkdir {blob.parent}",
        f"os.rename {blob}",
        f"open {log}",
    ]
    for event in made:
        folder = Path(event.split(" ", 1)[1]).parent
        assert f"open {folder}" in events[events.index(event) :], event  # no folder is opened for anything else


def test_only_one_process_drives_a_run(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    with store.working():
        with pytest.raises(UsageError, match=f"worked on by process {os.getpid()}"), Store.open(store.path).working():
            pass
        Store.open(store.path).append(card(5))
    with Store.open(store.path).working():
        assert len(store.all(Scorecard)) == 3


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Path:
    """A file system of 128 KiB, mounted for one test."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], capture_output=True)
    if made.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    return disk


def test_s55_a_page_that_finds_no_room_leaves_the_old_one(tiny_disk: Path) -> None:
    try:
        store = sample_run(tiny_disk / "run")
        (store.path / "report.html").write_text("old")
        with pytest.raises(UsageError, match=r"disk full at .*report\.html: free some space"):
            write_page(store)  # the figures alone are larger than this disk
        assert (store.path / "report.html").read_text() == "old"
        assert not list(store.path.glob("*.part"))
    finally:
        subprocess.run(["umount", "-l", str(tiny_disk)], check=True)


def test_s55_a_full_disk_is_one_clear_line_and_nothing_is_lost(tiny_disk: Path) -> None:
    try:
        store = sample_run(tiny_disk / "run")
        kept = []
        with pytest.raises(UsageError, match=r"disk full at .*ledger\.jsonl: free some space"):
            for number in range(5_000):
                store.append(ledger(f"x-{number}"))
                kept.append(f"x-{number}")
        assert kept and [e.id for e in Store.open(store.path).all(LedgerEntry)][3:] == kept
        with pytest.raises(UsageError, match="disk full"):
            store.put_blob(os.urandom(200_000))
        assert list(store.path.rglob(".*")) == []
        with pytest.raises(UsageError, match="disk full"):
            Store.create(store.path, RunConfig(caps=Caps(tokens=1)))
        assert Store.open(store.path).config == RunConfig()
    finally:
        subprocess.run(["umount", "-l", str(tiny_disk)], check=True)
