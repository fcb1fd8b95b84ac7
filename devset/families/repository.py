"""A small git repository as plain files, the same bytes every time: loose objects and one branch.

The format is that of "Git Internals - Git Objects" (Pro Git, 10.2). Objects are stored without compression, so that
their bytes do not depend on the version of zlib. There is no index, which git itself writes anew at every look: `INDEX`
makes one on the machine.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
_MODE = 0o100644
INDEX = "git -C {} reset -q"  # a set-up script; takes the folder of the repository


@dataclass(frozen=True)
class Commit:
    """What a commit says and the files that it leaves, by name (no folders). `when` is in seconds since 1970."""

    author: str
    message: str
    when: int
    files: Mapping[str, bytes]


def repository(commits: Sequence[Commit]) -> dict[str, bytes]:
    """The files below `.git` (path → bytes) of a history in order, whose last commit is the branch `main`."""
    objects: dict[str, bytes] = {}
    parent = ""
    for commit in commits:
        tree = _tree(commit.files, objects)
        person = f"{commit.author} <{commit.author.lower()}@mail.example> {commit.when} +0000"
        above = f"parent {parent}\n" if parent else ""
        text = f"tree {tree}\n{above}author {person}\ncommitter {person}\n\n{commit.message}\n"
        parent = _put(b"commit", text.encode(), objects)
    return {
        ".git/HEAD": b"ref: refs/heads/main\n",
        ".git/config": _CONFIG,
        ".git/refs/heads/main": f"{parent}\n".encode(),
        **objects,
    }


def object_of(kind: bytes, data: bytes) -> tuple[str, bytes]:
    """An object's id and the bytes that are hashed."""
    whole = kind + b" %d\0" % len(data) + data
    return hashlib.sha1(whole).hexdigest(), whole


def object_path(oid: str) -> str:
    return f".git/objects/{oid[:2]}/{oid[2:]}"


def _put(kind: bytes, data: bytes, objects: dict[str, bytes]) -> str:
    oid, whole = object_of(kind, data)
    objects[object_path(oid)] = zlib.compress(whole, 0)
    return oid


def _tree(files: Mapping[str, bytes], objects: dict[str, bytes]) -> str:
    entries = [(name, _put(b"blob", data, objects)) for name, data in sorted(files.items())]
    return _put(b"tree", b"".join(b"%o %s\0" % (_MODE, n.encode()) + bytes.fromhex(i) for n, i in entries), objects)
