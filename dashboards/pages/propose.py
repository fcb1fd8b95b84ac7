"""What should be tried next? A harness is edited or uploaded here, checked, and queued; the run races it later."""

from __future__ import annotations

import hashlib

import streamlit as st

from dashboards import draft, frame
from dashboards.draft import WHOLE, Edits
from dashboards.views import Story
from evolver.authors.human import Draft, leaks_of, queue
from evolver.errors import UsageError
from evolver.store import Store
from harnesses.diff import diff
from harnesses.harness import Harness
from harnesses.library import Library
from harnesses.tree import HarnessError, Tree, tree_files
from harnesses.upload import MAX_UPLOAD, read_folder, read_zip

EDIT, FOLDER, ZIP = "edit its files", "upload a directory", "upload a zip"
MOST_MB = max(1, MAX_UPLOAD // 1_000_000)
QUEUED = "p_queued"


def page() -> None:
    story = frame.story()
    st.header("What should be tried next?", anchor=False)
    st.caption(
        "A harness that you write here waits as a candidate, as after `evolver propose`; the run races it against the "
        "incumbent under the same rules as any other. Nothing of it runs in this page."
    )
    _say_queued(story)
    parent = _parent(story)
    if parent is None:
        return
    edits, name = _source(parent, f"{story.name(parent.id)}-edited")
    if edits is None:
        return
    made, wrong = draft.checked(edits.tree())
    left, right = st.columns([3, 2])
    with left:
        _files(edits, wrong, name)
    with right:
        _difference(parent, made, wrong)
        _ask(story, parent, made, name)


def _parent(story: Story) -> Harness | None:
    """The harness that the address or the reader names; else the incumbent."""
    kept = story.run.library_names()
    found = {label: h for h, label in story.harness_labels.items() if h in kept}
    if not found:
        st.info("This run has no harness to start from yet.")
        return None
    asked = st.query_params.get("from")
    if asked is not None and asked not in found:
        st.warning(f"No harness `{asked[:80]}` in this run; the incumbent is taken.")
    options = list(found)
    leader = next((label for label, h in found.items() if h == story.incumbent), options[0])
    place, beside = st.columns([2, 3], vertical_alignment="bottom")
    with place:
        chosen = st.selectbox("parent", options, index=options.index(leader), key="from", bind="query-params")
    with beside:
        st.segmented_control(
            "how", (EDIT, FOLDER, ZIP), default=EDIT, required=True, key="p_how", label_visibility="collapsed"
        )
    harness = story.run.harness(found.get(str(chosen), found[leader]))
    return harness if isinstance(harness, Harness) else None


def _source(parent: Harness, edited: str) -> tuple[Edits | None, str]:
    """The files to be proposed and what they are called; None while nothing is uploaded, or nothing that can be."""
    how = st.session_state.get("p_how", EDIT)
    if how == EDIT:
        return draft.edits_of(parent.id, parent, tree_files(parent)), edited
    try:
        found = _zip() if how == ZIP else _folder()
    except HarnessError as error:
        st.error("\n\n".join(error.lines), icon=":material/block:")
        return None, ""
    if found is None:
        st.caption(f"At most {MAX_UPLOAD:,} bytes; plain files only. They are read in memory and never run here.")
        return None, ""
    name, tree = found
    seen = hashlib.sha256(b"".join(path.encode() + b"\0" + data for path, data in sorted(tree.items()))).hexdigest()
    return draft.edits_of(f"{parent.id} {seen}", parent, tree), name


def _zip() -> tuple[str, Tree] | None:
    sent = st.file_uploader("a zip of a harness directory", "zip", key="p_zip", max_upload_size=MOST_MB)
    return None if sent is None else (sent.name.removesuffix(".zip"), read_zip(sent.getvalue()))


def _folder() -> tuple[str, Tree] | None:
    sent = st.file_uploader(
        "a harness directory", accept_multiple_files="directory", key="p_folder", max_upload_size=MOST_MB
    )
    if not sent:
        return None
    return sent[0].name.partition("/")[0], read_folder({one.name: one.getvalue() for one in sent})


def _files(edits: Edits, wrong: dict[str, list[str]], name: str) -> None:
    """One file at a time, with what is wrong in it beside it."""

    def label(path: str) -> str:
        said = [word for word in ("✕ can't be read" if path in wrong else "", edits.mark(path)) if word]
        return f"{path} ({', '.join(said)})" if said else path

    shown = edits.paths
    first = next((place for place, path in enumerate(shown) if path in wrong), 0)
    place, beside = st.columns([3, 2], vertical_alignment="bottom")
    with place:
        path = st.selectbox("file", shown, index=first, format_func=label, key="p_file") or shown[0]
    with beside:
        asked = "prompt/notes/bash.md, files/…"
        st.text_input("new file", key="p_new", placeholder=asked, max_chars=200, on_change=_add, args=(edits,))
    with st.container():  # in a place of its own, so that the editor below stays where it is
        for line in wrong.get(path, ()):
            st.error(line, icon=":material/error:")
    _editor(edits, path, f"{name} {path}")


def _editor(edits: Edits, path: str, key: str) -> None:
    if path not in edits.files:
        st.info("This file is taken away.")
    else:
        try:
            text = edits.files[path].decode()
        except UnicodeDecodeError:
            st.info(f"{len(edits.files[path]):,} bytes that are no text: kept as they are.")
        else:
            with st.container(key="editor"):
                box = f"p_text {id(edits)} {key}"
                st.text_area(path, text, height=420, key=box, on_change=_take, args=(edits, path, box))
    back, away, _ = st.columns([2, 2, 3])
    if path in edits.before:
        back.button("as in the parent", on_click=_restore, args=(edits, path), disabled=not edits.mark(path))
    if path in edits.files:
        away.button("remove this file", on_click=edits.files.pop, args=(path,))


def _add(edits: Edits) -> None:
    path = str(st.session_state["p_new"]).strip()
    if path:
        edits.files.setdefault(path, draft.NEW_BYTES)
        st.session_state["p_file"] = path
    st.session_state["p_new"] = ""


def _take(edits: Edits, path: str, box: str) -> None:
    edits.files[path] = str(st.session_state[box]).encode()


def _restore(edits: Edits, path: str) -> None:
    edits.files[path] = edits.before[path]
    for box in [key for key in st.session_state if str(key).startswith(f"p_text {id(edits)} ")]:
        del st.session_state[box]


def _difference(parent: Harness, made: Harness | None, wrong: dict[str, list[str]]) -> None:
    st.subheader("What it changes", anchor=False)
    for line in wrong.get(WHOLE, ()):
        st.error(line, icon=":material/error:")
    if made is None:
        named = [f"`{path}`" for path in wrong if path != WHOLE]
        st.caption(f"No harness yet: {', '.join(named) or 'the tree'} must be mended first.")
        return
    found = diff(parent, made)
    if not found.components:
        st.caption("Nothing so far: the files are the parent's, byte for byte.")
        return
    st.markdown(f"**changed components** {', '.join(found.components)} (F scaffold, T tools, P prompt, E environment)")
    st.code("\n".join(found.changes), language=None, wrap_lines=True)
    with st.expander("patch against the parent", expanded=True):
        frame.long_text(found.patch, "patch", language="diff")


def _ask(story: Story, parent: Harness, made: Harness | None, name: str) -> None:
    st.subheader("Queue it", anchor=False)
    called = st.text_input("name", key="p_name", placeholder=name, max_chars=80)
    why = st.text_area("why it should be better (needed)", key="p_why", max_chars=2_000, height=90)
    st.caption(draft.price(story))
    lacking = (
        "these pages are read-only" if frame.read_only()
        else "the files are no harness yet" if made is None
        else "nothing is changed" if made.id == parent.id
        else "no reason is given" if not (why or "").strip() else ""
    )  # fmt: skip
    pressed = st.button("Queue as a candidate", icon=":material/playlist_add:", type="primary", disabled=bool(lacking))
    if lacking:
        st.caption(f"It can't be queued: {lacking}.")
    elif pressed and made is not None:
        _queue(story, Draft(parent.id, (called or "").strip() or name, why or "", made))


def _queue(story: Story, wanted: Draft) -> None:
    """The same function, checks and record as `evolver propose`."""
    library = Library(story.run.path / "library")
    try:
        with st.spinner("reading the tasks that no harness may carry"):
            store = Store.open(story.run.path)
            candidate = queue(store, library, wanted, leaks_of(store))
    except UsageError as error:
        st.error(str(error), icon=":material/block:")
        return
    finally:
        library.close()
    st.session_state[QUEUED] = candidate.id
    st.rerun()


def _say_queued(story: Story) -> None:
    queued = next((c for c in story.population.candidates if c.id == st.session_state.get(QUEUED)), None)
    if queued is not None:
        link = frame.link("lineage", {"h": story.candidate_labels[queued.id]})
        st.success(
            f"Candidate [{queued.name}]({link}) ({queued.harness_id[:12]}) waits. It is raced when the run goes on: "
            f"`evolver run CONFIG --out {story.run.path}`.",
            icon=":material/check:",
        )


if __name__ == "__main__":
    page()
