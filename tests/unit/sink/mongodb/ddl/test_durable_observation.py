"""What an owner observes at the target counts when no election can take it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from bson import ObjectId

from changefeed.documents.document import EMPTY
from changefeed.records.ddl import Observation, ObservedTable
from changefeed.table import TableName
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier

NAME = TableName("shop", "a")
ONE, TWO = ObjectId(), ObjectId()


def seen(uuid: str | None) -> Observation:
    return Observation(tables={NAME: None if uuid is None else ObservedTable(uuid=uuid, options=EMPTY, indexes=())})


class Applier(MongoDdlApplier):
    """Over a target whose terms and tables are these, look by look."""

    def __init__(self, terms: Sequence[ObjectId | None], looks: Sequence[Observation]) -> None:
        client: Any = None
        super().__init__(client, permit=lambda: 10.0)
        self._terms, self._looks = iter(terms), iter(looks)
        self.waited = 0

    def _term(self) -> ObjectId | None:
        return next(self._terms)

    def _reach_majority(self, db: str) -> ObjectId | None:
        self.waited += 1
        return next(self._terms)

    def _look(self, names: Iterable[TableName]) -> Observation:
        return next(self._looks)


def test_an_observation_that_the_majority_confirmed_in_its_term_counts() -> None:
    applier = Applier([ONE, ONE], [seen("u1")])
    assert applier.observe([NAME]) == seen("u1")
    assert applier.waited == 1


def test_an_observation_of_a_primary_that_was_followed_by_another_is_made_again() -> None:
    """The other one may never have had what was observed."""
    applier = Applier([ONE, TWO, TWO, TWO], [seen("u1"), seen(None)])
    assert applier.observe([NAME]) == seen(None)


@pytest.mark.parametrize(("looks", "found"), [(("u1", "u1"), "u1"), (("u1", None, None, None), None)])
def test_where_no_term_is_told_two_equal_observations_count(looks: Sequence[str | None], found: str | None) -> None:
    """As behind a router: the majority was reached between the two."""
    applier = Applier([None] * 4, [seen(uuid) for uuid in looks])
    assert applier.observe([NAME]) == seen(found)
