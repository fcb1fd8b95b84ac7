"""Why a package could not be had: one that does not exist is the harness's fault, a silent mirror is nobody's."""

from __future__ import annotations

import pytest

from evolver.errors import NotReady, UsageError
from evolver.sandboxes.rootfs import why_no_package


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("E: Unable to locate package nosuch", UsageError, "has no package nosuch"),
        ("E: Package 'gone' has no installation candidate", UsageError, "has no package gone"),
        ("dpkg: error processing archive", UsageError, "were not installed"),
        ("W: Failed to fetch http://mirror.test/x\nE: Unable to locate package nosuch", NotReady, "does not answer"),
        ("Err:1 Temporary failure resolving 'mirror.test'", NotReady, "does not answer"),
    ],
)
def test_a_mirror_that_does_not_answer_is_no_fault_of_a_harness(said: str, kind: type[Exception], told: str) -> None:
    error = why_no_package(("nosuch", "gone"), said)
    assert type(error) is kind and told in str(error)
