"""All versions of harnesses in one git repository: a harness is a tree, a candidate a commit, a lineage a branch."""

from __future__ import annotations

import difflib
import io
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from git import InvalidGitRepositoryError, Repo

from harnesses.harness import Harness
from harnesses.tree import HarnessError, Tree, git_objects, harness_from_files, object_id, read_tree, seed_path

NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?!\.|lock$|$)){0,79}")
SHORTEST_PREFIX = 4
# One identity and one date, so that the same candidate is the same commit on every machine and after every resume.
SIGNATURE = "harness library <library@localhost> 1767225600 +0000"


class UnknownHarness(LookupError):
    """No harness, or more than one, answers to what was asked for."""


@dataclass(frozen=True)
class _Version:
    commit: str
    tree: str
    parents: tuple[str, ...]


class Library:
    """Harnesses of one run. Names live under `refs/names/`, lineages are branches, and what a harness came to stand
    for (a promotion, a stage, a capsule) is an annotated tag.

    Every file is written beside its place, synced and renamed, objects before the ref that needs them: a process that
    dies at any point leaves a repository in order. For one thread; several processes may read while one writes.
    """

    def __init__(self, path: Path) -> None:
        """Opens the repository at `path`, or makes a bare one. Raises `HarnessError` if something else is there."""
        if not path.exists() or not any(path.iterdir()):
            _create(path)
        try:
            self._repo = Repo(path, expand_vars=False)
        except InvalidGitRepositoryError as error:
            raise HarnessError(f"{path}: expected a git repository or nothing") from error
        self.path = path
        self._git_dir = Path(self._repo.common_dir)
        self._repo.git.update_environment(**_environment(self._git_dir))
        self._loaded: dict[str, Harness] = {}
        self._reached: dict[str, _Version] = {}
        self._read_at: dict[str, str] = {}  # the refs at which `_reached` was read

    def close(self) -> None:
        """Ends the git processes that reading started."""
        self._repo.close()

    def add(
        self,
        files: Mapping[str, bytes],
        *,
        name: str,
        parents: Sequence[str] = (),
        message: str = "",
        branch: str | None = None,
    ) -> str:
        """Adds a harness under `name` and returns its id; the new commit becomes the head of `branch`, if given.

        `parents` are ids or names. A tree that is here already gets `name` as one more name and no new commit (and
        starts `branch` if that is new). Raises `HarnessError` (invalid tree, or the name is another harness's).
        """
        harness = harness_from_files(files)
        self._check_free(name, harness.id)
        versions = self._versions()
        known = next((v for v in versions.values() if v.tree == harness.id), None)
        if known is not None:
            commit = known.commit
        else:
            trees = dict.fromkeys(self.resolve(parent) for parent in parents)
            for kind, _, content in git_objects(Tree(harness.files, harness.executable)):
                self._write_object(kind, content)
            lines = [f"tree {harness.id}", *(f"parent {self.commit_of(tree)}" for tree in trees)]
            lines += [f"author {SIGNATURE}", f"committer {SIGNATURE}", "", message.strip() or name, ""]
            commit = self._write_object("commit", "\n".join(lines).encode())
        if branch is not None and (known is None or f"refs/heads/{branch}" not in self._refs()):
            self._point(f"refs/heads/{_checked(branch)}", commit)
        self._point(f"refs/names/{name}", commit)
        return harness.id

    def add_seed(self, seed: str) -> str:
        """Adds a seed of the package under its own name, on a branch of that name; returns its id."""
        harness = read_tree(seed_path(seed))
        return self.add(Tree(harness.files, harness.executable), name=seed, message=f"seed {seed}", branch=seed)

    def get(self, asked: str) -> Harness:
        """The harness with this id, unique prefix of an id, name or tag. Raises `UnknownHarness`."""
        tree = self.resolve(asked)
        if tree not in self._loaded:
            harness = harness_from_files(self._read(tree))
            if harness.id != tree:
                raise HarnessError(f"harness {tree}: read back as {harness.id}; {self._git_dir} is damaged")
            self._loaded[tree] = harness
        return self._loaded[tree]

    def resolve(self, asked: str) -> str:
        """The full id behind an id, unique prefix, name or tag. Raises `UnknownHarness`."""
        if asked in self._loaded:
            return asked
        names = self.tags() | self.names()
        if asked in names:
            return names[asked]
        trees = dict.fromkeys(v.tree for v in self._versions().values())
        fits = [tree for tree in trees if len(asked) >= SHORTEST_PREFIX and tree.startswith(asked)]
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise UnknownHarness(f"{asked!r} fits {len(fits)} harnesses: {', '.join(t[:12] for t in fits)}")
        near = difflib.get_close_matches(asked, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none yet'}"
        raise UnknownHarness(f"unknown harness {asked!r}; {hint}")

    def names(self) -> dict[str, str]:
        """Name → id, of everything that was added."""
        return self._ids_under("refs/names/")

    def tags(self) -> dict[str, str]:
        """Annotated tag → id of its harness."""
        return self._ids_under("refs/tags/")

    def commit_of(self, asked: str) -> str:
        """The commit (40 hex digits) that brought this harness in."""
        tree = self.resolve(asked)
        return next(v.commit for v in self._versions().values() if v.tree == tree)

    def parents_of(self, asked: str) -> tuple[str, ...]:
        """The ids of the parent harnesses."""
        versions = self._versions()
        return tuple(versions[parent].tree for parent in versions[self.commit_of(asked)].parents)

    def lineage(self, branch: str) -> list[str]:
        """The ids along a branch by first parents, oldest first. Raises `UnknownHarness`."""
        commit = self._refs().get(f"refs/heads/{branch}")
        if commit is None:
            raise UnknownHarness(f"unknown lineage {branch!r}; known: {', '.join(self.branches()) or 'none yet'}")
        versions, line = self._versions(), []
        while commit is not None:
            line.append(versions[commit].tree)
            commit = next(iter(versions[commit].parents), None)
        return line[::-1]

    def branches(self) -> list[str]:
        return [ref.removeprefix("refs/heads/") for ref in self._refs() if ref.startswith("refs/heads/")]

    def advance(self, branch: str, asked: str) -> None:
        """Makes a harness the head of a lineage (a promotion)."""
        self._point(f"refs/heads/{_checked(branch)}", self.commit_of(asked))

    def tag(self, asked: str, name: str, message: str) -> str:
        """Gives a harness the annotated tag `name` and returns it; again is a no-op.

        Raises `HarnessError` when the name stands for another harness.
        """
        tree = self.resolve(asked)
        self._check_free(name, tree)
        if name not in self.tags():
            lines = [f"object {self.commit_of(tree)}", "type commit", f"tag {name}", f"tagger {SIGNATURE}"]
            self._point(f"refs/tags/{name}", self._write_object("tag", "\n".join([*lines, "", message, ""]).encode()))
        return name

    def message_of(self, tag: str) -> str:
        """The message of an annotated tag. Raises `UnknownHarness`."""
        if tag not in self.tags():
            raise UnknownHarness(f"unknown tag {tag!r}; known: {', '.join(self.tags()) or 'none yet'}")
        return str(self._repo.git.for_each_ref("--format=%(contents)", f"refs/tags/{tag}"))

    def archive(self, asked: str) -> bytes:
        """The files of a harness as a tar, the same bytes every time. Raises `UnknownHarness`."""
        harness, packed = self.get(asked), io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:  # `git archive` would heed a .gitattributes of the harness
            for path, data in sorted(harness.files.items()):
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(data), 0o755 if path in harness.executable else 0o644
                tar.addfile(entry, io.BytesIO(data))
        return packed.getvalue()

    def _check_free(self, name: str, tree: str) -> None:
        _checked(name)
        for names in (self.names(), self.tags()):
            if names.get(name, tree) != tree:
                raise HarnessError(f"the name {name!r} belongs to harness {names[name][:12]}, expected a new one")

    def _ids_under(self, prefix: str) -> dict[str, str]:
        versions = self._versions()
        refs = {ref.removeprefix(prefix): commit for ref, commit in self._refs().items() if ref.startswith(prefix)}
        return {name: versions[commit].tree for name, commit in refs.items()}

    def _refs(self) -> dict[str, str]:
        """Ref → commit, annotated tags followed."""
        lines = self._repo.git.for_each_ref("--format=%(refname) %(objectname) %(*objectname)").splitlines()
        return {line.split()[0]: line.split()[-1] for line in lines}

    def _versions(self) -> dict[str, _Version]:
        """Every commit that a ref reaches, newest first."""
        refs = self._refs()
        if refs != self._read_at:
            log = self._repo.git.log("--all", "--topo-order", "--format=%H %T %P") if refs else ""
            rows = [line.split() for line in log.splitlines()]
            self._reached = {row[0]: _Version(row[0], row[1], tuple(row[2:])) for row in rows}
            self._read_at = refs
        return self._reached

    def _read(self, tree: str) -> Tree:
        listed = self._repo.git.ls_tree("-r", "-z", tree, strip_newline_in_stdout=False)
        files, executable = {}, set()
        for row in listed.rstrip("\0").split("\0"):
            (mode, _, sha), path = row.partition("\t")[0].split(), row.partition("\t")[2]
            if mode not in ("100644", "100755"):
                raise HarnessError(f"{path}: expected a plain file in harness {tree[:12]}, got mode {mode}")
            files[path] = bytes(self._repo.odb.stream(bytes.fromhex(sha)).read())
            if mode == "100755":
                executable.add(path)
        return Tree(files, executable)

    def _write_object(self, kind: str, content: bytes) -> str:
        sha = object_id(kind, content)
        path = self._git_dir / "objects" / sha[:2] / sha[2:]
        if not path.exists():
            _write(path, zlib.compress(f"{kind} {len(content)}\0".encode() + content, 1), mode=0o444)
        return sha

    def _point(self, ref: str, sha: str) -> None:
        # git's own way leaves a .lock file behind when it is killed, which then stops every later update
        _write(self._git_dir / ref, f"{sha}\n".encode(), mode=0o644)


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise HarnessError(f"name {name!r}: expected lower-case letters, digits, '.', '_' or '-' (at most 80)")
    return name


def _create(path: Path) -> None:
    """Makes a bare repository beside `path` and moves it there, so that no half-made one is ever seen.

    By hand (gitrepository-layout), since `git init` would bring in the user's templates, hooks and defaults.
    """
    new = path.with_name(f".{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    for folder in ("objects", "refs/heads"):
        (new / folder).mkdir(parents=True)
    (new / "HEAD").write_text("ref: refs/heads/main\n")
    (new / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n[gc]\n\tauto = 0\n")
    new.rename(path)


def _environment(git_dir: Path) -> dict[str, str]:
    """Keeps the user's configuration, hooks and templates, and a surrounding git's variables, out."""
    return {
        "GIT_DIR": str(git_dir.resolve()),
        "GIT_COMMON_DIR": str(git_dir.resolve()),
        "GIT_WORK_TREE": str(git_dir.resolve()),
        "GIT_INDEX_FILE": str(git_dir.resolve() / "index"),
        "GIT_OBJECT_DIRECTORY": str(git_dir.resolve() / "objects"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def _write(path: Path, data: bytes, *, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(mode)
    new.replace(path)
