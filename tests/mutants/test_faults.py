"""Each fault can still be put into the product. Whether tests see it is asked by `make mutants`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.house import PRODUCT, ROOT
from tests.mutants.fault import Fault
from tests.mutants.faults.every import FAULTS
from tests.mutants.looks import exists
from tests.mutants.tree import place_of, product_texts

EVERY = [fault for faults in FAULTS.values() for fault in faults]


@pytest.mark.parametrize("fault", EVERY, ids=lambda fault: fault.name)
def test_a_fault_stands_once_in_the_product_and_leaves_a_module(fault: Fault) -> None:
    place = place_of(fault)
    compile(product_texts()[place].replace(fault.text, fault.replacement), str(place), "exec")
    assert [test for test in fault.tests if not exists(ROOT, test)] == []


def test_a_fault_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(fault.name for fault in EVERY).items() if count > 1] == []


def test_every_room_has_faults() -> None:
    assert FAULTS.keys() == set(PRODUCT)
