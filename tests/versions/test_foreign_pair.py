"""The two versions that are furthest apart, with one DDL kind of each group; `make versions` runs all kinds on all pairs, with an accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.versions.kinds import COLUMNS, KINDS
from tests.versions.pair import Pair, Versions

_FEW = ("create_view", "index_simple", "drop_index", "modify_ttl", "rename_across", "drop_create", "to_capped")


@pytest.mark.soak
def test_a_source_of_4_4_and_a_target_of_6_0_become_equal(tmp_path: Path, subtests: pytest.Subtests) -> None:
    kinds = {name: KINDS[name] for name in _FEW}
    assert {kind.column for kind in kinds.values()} == set(COLUMNS)
    found = Pair(Versions(source="4.4.2", target="6.0.27"), tmp_path, accident=False, kinds=kinds).run()
    assert set(found.faults) > set(COLUMNS)
    for what, faults in found.faults.items():
        with subtests.test(what):
            assert faults == []
