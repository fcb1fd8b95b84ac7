"""The language model author in real sandboxes, played by a scripted endpoint: every way that a proposal can go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from evolver.authors.gate import Gate, Refused
from evolver.authors.llm import SHIPPED
from evolver.authors.make import make_authors
from evolver.config import RunConfig
from evolver.errors import UsageError
from evolver.executors.local import LocalExecutor
from evolver.lab import Lab
from evolver.leaks import Leaks
from evolver.models import make_model
from evolver.protocols import Proposal
from evolver.records import Candidate, FailedProposal, LedgerEntry, Rollout, Scorecard
from evolver.sent import bodies
from evolver.store import Store
from evolver.testing import FakeSandboxes
from harnesses.edit import with_changes
from harnesses.harness import Environment
from harnesses.library import Library
from harnesses.tree import harness_from_files, read_tree, write_tree
from tests.evolver.authoring import (
    ADDS_A_TOOL,
    AUTHOR,
    DEV,
    DONE,
    FLIPPED,
    KINDS,
    MANIFEST,
    NO_FLIPS,
    REMOVES_A_PACKAGE,
    config,
    desk,
    failed,
    first_user_message,
    runs,
    says,
    terminal_tree,
)
from tests.evolver.endpoint_server import Reply, chat, serving

# --- what it may do --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_it_adds_a_tool_and_what_it_claims_and_costs_is_on_record(
    tmp_path: Path, kind: Literal["docker", "local"]
) -> None:
    looks = runs("cat /evidence/README.md; cat /evidence/tasks.md; ls ~/harness", ADDS_A_TOOL)
    with serving(looks, runs(says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url), kind) as place:
            made = await place.author.propose(place.evidence("Seen: 3 of 8."))
            assert isinstance(made, Proposal)
            [rollout] = place.store.all(Rollout)
            [entry] = place.store.all(LedgerEntry)
            said = rollout.turns[0].results[0].text
            sent = bodies(place.store.blob(rollout.requests_sha256 or ""))
    candidate = made.candidate
    assert (candidate.author, candidate.components, candidate.parents) == ("llm", ("T",), (place.root,))
    assert candidate.changes == ("tools: + list_files", "files: + files/list.sh")
    child = harness_from_files(made.tree)
    assert child.id == candidate.harness_id and "files/list.sh" in child.executable
    assert candidate.manifest.edits == ("a tool that lists files",)
    assert [(f.task_id, f.probability, f.edit) for f in candidate.manifest.predicted_flips] == [
        (FLIPPED, 0.6, "a tool that lists files")
    ]
    assert "Seen: 3 of 8." in said and "| task |" in said and "environment.toml" in said
    assert (rollout.key.purpose, rollout.key.model_id, rollout.key.split) == ("author", AUTHOR, None)
    assert rollout.loaded_harness_id == read_tree(SHIPPED).id and rollout.state_sha256
    assert (entry.role, entry.calls, entry.rollout_id) == ("author", 3, rollout.id)
    assert (candidate.author_tokens, candidate.author_cost_usd) == (3 * 18, pytest.approx(3 * 18e-6))
    assert len(sent) == 3 and len(endpoint.requests) == 3
    assert "Seen: 3 of 8." in first_user_message(endpoint.requests[0])
    assert place.store.all(Scorecard) == []


async def test_it_removes_a_package_and_the_component_comes_from_the_trees(tmp_path: Path) -> None:
    manifest = {**MANIFEST, "edits": [{**NO_FLIPS, "what": "P: words"}]}
    with serving(runs(REMOVES_A_PACKAGE, says(manifest)), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url)) as place:
            made = await place.author.propose(place.evidence())
    assert made is not None and made.candidate.components == ("E",)
    assert made.candidate.changes == ("environment.pip: - openpyxl",)


async def test_calls_as_text_work_like_native_ones(tmp_path: Path) -> None:
    xml = with_changes(read_tree(SHIPPED), {"scaffold.protocol": "xml"})
    write_tree(harness_from_files(xml), tmp_path / "author")

    def text(*commands: str) -> Reply:
        blocks = [
            f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': c}})}</tool_call>" for c in commands
        ]
        return chat({"content": "\n".join(blocks)})

    with serving(text(REMOVES_A_PACKAGE, says()), DONE) as endpoint:
        plain = config(endpoint.url)
        author = plain.authors[0].model_copy(update={"harness": str(tmp_path / "author")})
        async with desk(tmp_path / "run", plain.model_copy(update={"authors": (author,)})) as place:
            made = await place.author.propose(place.evidence())
            [rollout] = place.store.all(Rollout)
    assert made is not None and made.candidate.components == ("E",)
    assert rollout.loaded_harness_id == harness_from_files(xml).id and "tools" not in endpoint.requests[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_e39_every_byte_and_mode_of_the_folder_is_the_proposal(
    tmp_path: Path, kind: Literal["docker", "local"]
) -> None:
    odd = (
        "cd ~/harness && mkdir -p files/.hidden && git init -q . && echo '*' > files/.gitignore && : > files/empty &&"
        " printf '\\000\\377' > files/.hidden/bytes && printf '#!/bin/sh\\n' > files/plain.sh && printf x > files/run"
        " && chmod 755 files/run"
    )
    with serving(runs(odd, says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url), kind) as place:
            made = await place.author.propose(place.evidence())
            assert made is not None
            place.lab.library.add(made.tree, name="odd", parents=made.candidate.parents)
            kept = place.lab.library.get(made.candidate.harness_id)
    added = {path: data for path, data in kept.files.items() if path.startswith("files/")}
    assert added == {
        "files/.gitignore": b"*\n", "files/.hidden/bytes": b"\0\xff", "files/empty": b"",
        "files/plain.sh": b"#!/bin/sh\n", "files/run": b"x",
    }  # fmt: skip
    assert kept.executable == {"files/run"}


async def test_nothing_it_wrote_runs_outside_a_sandbox(tmp_path: Path) -> None:
    """A hook, a tool and files that Python would pick up, each of which leaves a mark: none is left on this machine."""
    mark = tmp_path / "mark"
    traps = f"""cd ~/harness && mkdir files && printf '#!/bin/sh\\ntouch {mark}\\n' > files/hook.sh
chmod +x files/hook.sh
printf 'open("{mark}", "w")' | tee files/sitecustomize.py files/conftest.py files/tomllib.py > files/json.py
printf '[[hooks]]\\nat = "start"\\nentry = "files/hook.sh"\\n' >> scaffold.toml && ./files/hook.sh"""
    with serving(runs(traps, says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url)) as place:
            made = await place.author.propose(place.evidence())
            assert made is not None and set(made.candidate.components) == {"F", "T"}
            place.lab.library.add(made.tree, name="traps")
            assert place.lab.library.get(made.candidate.harness_id).scaffold.hooks
    assert not mark.exists()


# --- what is refused -------------------------------------------------------------------------------------------------


async def test_e06_a_broken_edit_goes_back_with_its_errors_and_is_mended_where_it_stands(tmp_path: Path) -> None:
    breaks = "cd ~/harness && sed -i 's/max_steps = 20/max_steps = twenty/' scaffold.toml && echo x > notes.txt"
    mends = "cd ~/harness && sed -i 's/twenty/25/' scaffold.toml && rm notes.txt"
    bad = {**MANIFEST, "edits": [{"what": "steps", "predicted_flips": []}], "sure": True}
    with serving(runs(breaks, says(bad)), DONE, runs(f"{mends}; cat ~/manifest.json", says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url)) as place:
            made = await place.author.propose(place.evidence())
            first, second = place.store.all(Rollout)
            entries = place.store.all(LedgerEntry)
            assert place.lab.library.get(place.root).scaffold.max_steps == 20
            assert place.store.all(FailedProposal) == []
    assert made is not None and made.candidate.changes == ("scaffold.max_steps: 20 → 25",)
    told = first_user_message(endpoint.requests[2])
    assert "notes.txt: unknown file" in told
    assert "manifest.json: edits.0.predicted_regressions: missing" in told and "sure: unknown field" in told
    assert "not taken yet" not in first_user_message(endpoint.requests[0]) and "not taken yet" in told
    assert '"sure": true' in second.turns[0].results[0].text  # what it had written was there again
    assert [e.rollout_id for e in entries] == [first.id, second.id] and (first.key.attempt, second.key.attempt) == (
        0,
        1,
    )
    assert made.candidate.author_tokens == 4 * 18


async def test_e20_e13_a_leaked_task_id_fails_the_proposal_which_is_billed_and_on_record(tmp_path: Path) -> None:
    leak = f"echo 'For {FLIPPED} count twice.' >> ~/harness/prompt/system.md"
    with serving(runs(leak, says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url, max_repairs=1)) as place:
            assert await place.author.propose(place.evidence()) is None
            record, rollouts = failed(place.store), place.store.all(Rollout)
            assert place.store.all(Candidate)[0].name == "root" and len(place.store.all(Candidate)) == 1
            assert await place.author.propose(place.evidence()) is None  # n = 1: it was the only one
    assert len(rollouts) == 2 and record.rollout_ids == tuple(r.id for r in rollouts)
    assert record.author_tokens == 3 * 18 and record.author_cost_usd == pytest.approx(54e-6)
    assert len(record.reasons) == 2 and f"the id of a task ('{FLIPPED}')" in record.reasons[0]
    assert "prompt/system.md, line 2" in record.reasons[0] and record.parent == place.root
    assert record.why == "files are found sooner" and record.changes == ("prompt.system: 3 → 7 words (+1 −0 lines)",)
    assert len(endpoint.requests) == 3


async def test_links_special_files_and_floods_are_refused_not_followed(tmp_path: Path) -> None:
    links = (
        "cd ~/harness && mkdir files && ln -s /etc/passwd files/passwd && mkfifo files/pipe && ln scaffold.toml files/2"
    )
    flood = "cd ~/harness && rm -rf files && mkdir files && head -c 5000000 /dev/zero > files/zeros"
    with serving(runs(links, says()), DONE, runs(flood), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url, max_repairs=1)) as place:
            assert await place.author.propose(place.evidence()) is None
            reasons = failed(place.store).reasons
    for said in ("'harness/files/passwd': expected a plain file, got one that is a symbolic link", "a hard link"):
        assert said in reasons[0]
    assert "'harness/files/pipe'" in reasons[0] and "root:" not in json.dumps(endpoint.requests)
    assert "expected at most 500 files and 4,000,000 bytes" in reasons[1]


async def test_a_home_too_large_to_freeze_is_the_author_s_own_failure(tmp_path: Path) -> None:
    with serving(runs("head -c 300000000 /dev/zero > ~/big", says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url, max_repairs=0)) as place:
            assert await place.author.propose(place.evidence()) is None
            assert "larger than 256 MiB" in failed(place.store).reasons[0]


async def test_e09_a_known_tree_costs_no_attempt_of_the_teacher(tmp_path: Path) -> None:
    same, comment = "true", "echo '# faster' >> ~/harness/scaffold.toml"
    with serving(runs(same, says()), DONE, runs(comment, says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url, max_repairs=1)) as place:
            assert await place.author.propose(place.evidence()) is None
            assert {r.key.purpose for r in place.store.all(Rollout)} == {"author"}
            reasons = failed(place.store).reasons
    assert "expected a change, got the parent's tree byte for byte" in reasons[0]
    assert "differs in nothing but comments, spaces or order from root" in reasons[1]


async def test_it_opens_no_network_and_takes_over_no_machine(tmp_path: Path) -> None:
    store, library = Store.create(tmp_path / "run", RunConfig()), Library(tmp_path / "run" / "library")
    gate, parent = Gate(store, library, FakeSandboxes(), Leaks([])), harness_from_files(terminal_tree())
    wide = {"environment.network": "allowlist", "environment.allowlist": ["example.org"]}
    with pytest.raises(Refused, match=r"allowlist: 'example.org' is not the parent's; only people open the network"):
        gate.checked(parent, with_changes(parent, wide))
    for field, most in (("memory_mb", 4_096), ("pids", 1_024), ("disk_mb", 1_024)):
        assert gate.checked(parent, with_changes(parent, {f"environment.limits.{field}": most}))
        with pytest.raises(Refused, match=f"limits.{field}: expected at most {most:,}"):
            gate.checked(parent, with_changes(parent, {f"environment.limits.{field}": most + 1}))
    opened = harness_from_files(with_changes(parent, wide))
    assert gate.checked(opened, with_changes(opened, {"scaffold.max_steps": 9}))


async def test_a_machine_that_can_t_be_built_goes_back_to_the_author(tmp_path: Path) -> None:
    class NoSuchPackage(FakeSandboxes):
        async def prepare(self, environment: Environment) -> str:
            raise UsageError("pip packages nothing-like-it: No matching distribution found")

    store, library = Store.create(tmp_path / "run", RunConfig()), Library(tmp_path / "run" / "library")
    gate = Gate(store, library, NoSuchPackage(), Leaks([]))
    with pytest.raises(Refused, match=r"environment.toml: it can't be built: pip packages nothing-like-it"):
        await gate.buildable(harness_from_files(terminal_tree()))


def test_an_authoring_harness_without_a_shell_is_refused_at_the_start(tmp_path: Path) -> None:
    plain = config("http://127.0.0.1:9/v1")
    author = plain.authors[0].model_copy(update={"harness": "alpha"})
    lab = Lab(
        Store.create(tmp_path / "run", plain.model_copy(update={"authors": (author,)})),
        Library(tmp_path / "run" / "library"), FakeSandboxes(), [], make_model(plain.teacher), LocalExecutor(1),
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"authors.harness 'alpha': expected a bash or program tool"):
        make_authors(lab, DEV, [])
