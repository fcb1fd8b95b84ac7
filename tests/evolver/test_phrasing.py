"""How numbers are written."""

from __future__ import annotations

import pytest

from evolver.phrasing import p_value


@pytest.mark.parametrize(("p", "said"), [(0.0312, "p = 0.0312"), (1.0, "p = 1.0000"), (1e-9, "p < 0.0001")])
def test_a_small_p_is_not_written_as_none(p: float, said: str) -> None:
    assert p_value(p) == said
