"""A write counts when the target's majority has it: the driver reads no write concern error from the reply to a plain command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import bson
import pytest
from bson import Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import FencedError, SinkMajorityStalled, SinkUnavailable, SluiceError
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.commander import Commander
from sink.mongodb.connection import LATE
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.ddl.ddl_commands import DdlCommand
from sink.mongodb.rows.batch_sender import BatchSender
from sink.mongodb.rows.bulk_plan import CommandSizes
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.mongodb.rows.row_rewrite import RowRewrite
from sink.mongodb.rows.row_writer import RowWriterOptions
from sink.row import RowChange, TargetTable

_WRITTEN = {"ts": Timestamp(100, 5), "t": 3}
_INSERT: dict[str, Any] = {"insert": "rows", "documents": [{"_id": 1}], "writeConcern": {"w": "majority"}}
_CREATE = DdlCommand("shop", {"create": "rows"})


def _unsatisfied(code: int) -> dict[str, Any]:
    return {"n": 1, "ok": 1, "opTime": _WRITTEN, "writeConcernError": {"code": code, "errmsg": "not satisfied"}}


class Target:
    """A client of a primary: what it answers to writes, and where its majority is at each look, as (term, increment)."""

    def __init__(self, *answers: Mapping[str, Any], majority: tuple[tuple[int, int], ...] = ((3, 4),)) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self._answers = iter(answers)
        self._majority: Iterator[tuple[int, int]] = iter(majority)
        self._point = majority[0]

    @property
    def admin(self) -> Target:
        return self

    def __getitem__(self, database: str) -> Target:
        return self

    def start_session(self) -> nullcontext[None]:
        return nullcontext()

    def command(self, command: Any, **_: object) -> Mapping[str, Any]:
        if command == "hello":
            self._point = next(self._majority, self._point)
            term, increment = self._point
            at = {"ts": Timestamp(100, increment), "t": term}
            newest = {"ts": Timestamp(100, 9), "t": term}
            return {"setName": "target", "primary": "a", "lastWrite": {"majorityOpTime": at, "opTime": newest}}
        self.sent.append(command)
        return next(self._answers)


def _commander(target: Target, permit: Callable[[], float] = lambda: 10.0) -> Commander:
    """It waits for nothing: each pause is over at once, and so is its patience."""
    commander = Commander(
        target,  # type: ignore[arg-type]  # has what a commander uses of a client
        permit=permit,
        retry_for=timedelta(),
        patience=timedelta(),
        pause=lambda _: None,
    )
    commander.begin()
    return commander


def _applier(target: Target, permit: Callable[[], float] = lambda: 10.0) -> MongoDdlApplier:
    return MongoDdlApplier(target, permit=permit)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("code", sorted(LATE))
def test_rows_that_the_majority_does_not_get_are_not_written(code: int) -> None:
    with pytest.raises(SinkMajorityStalled, match="has not moved since"):
        _commander(Target(_unsatisfied(code))).send("shop", _INSERT, "insert")


def test_rows_that_the_majority_gets_late_are_written_and_sent_once() -> None:
    target = Target(_unsatisfied(64), majority=((3, 5),))
    assert _commander(target).send("shop", _INSERT, "insert").document["n"] == 1
    assert len(target.sent) == 1


def test_the_majority_of_another_primary_says_nothing_of_a_write() -> None:
    with pytest.raises(SinkUnavailable, match="elected another primary before its majority had this write"):
        _commander(Target(_unsatisfied(64), majority=((4, 8),))).send("shop", _INSERT, "insert")


@pytest.mark.parametrize("code", [91, 100, 189])
def test_rows_under_any_other_unsatisfied_concern_are_not_written(code: int) -> None:
    with pytest.raises(SinkUnavailable, match="not durable yet: not satisfied"):
        _commander(Target(_unsatisfied(code))).send("shop", _INSERT, "insert")


@pytest.mark.parametrize(
    ("code", "error"),
    [*((code, SinkMajorityStalled) for code in sorted(LATE)), (91, SinkUnavailable), (100, SinkUnavailable)],
)
def test_a_ddl_under_an_unsatisfied_concern_is_not_done(code: int, error: type[SluiceError]) -> None:
    with pytest.raises(error):
        _applier(Target(_unsatisfied(code))).run([_CREATE])


def test_a_ddl_is_sent_with_the_majority_s_concern_and_within_the_permit() -> None:
    target = Target({"ok": 1})
    _applier(target, lambda: 4.0).run([_CREATE])
    [sent] = target.sent
    assert sent["writeConcern"] == {"w": "majority", "wtimeout": 2000}


@pytest.mark.parametrize("left", [0.0, -1.0])
def test_nothing_is_sent_when_the_permit_has_ended(left: float) -> None:
    target = Target({"ok": 1}, {"ok": 1})
    with pytest.raises(FencedError):
        _commander(target, lambda: left).send("shop", _INSERT, "insert")
    with pytest.raises(FencedError):
        _applier(target, lambda: left).run([_CREATE])
    assert target.sent == []


def test_rows_wait_for_the_majority_no_longer_than_the_permit_lasts() -> None:
    target = Target({"n": 1, "ok": 1})
    commander = _commander(target, lambda: 1.0)
    commander._deadline = float("inf")
    commander.send("shop", _INSERT, "insert")
    [sent] = target.sent
    assert sent["writeConcern"] == {"w": "majority", "wtimeout": 500}


def _load(target: Target) -> None:
    name = TableName("shop", "rows")
    table = TargetTable(id=TableId("a" * 32), source=name, name=name)
    client: Any = target
    options = RowWriterOptions(retry_for=timedelta(), patience=timedelta())
    loader = MongoDocumentLoader(client, table=table, once=False, permit=lambda: 10.0, options=options)
    loader.load([bson.encode({"_id": 1})], ClusterTime(100, 1))


def test_copied_documents_are_loaded_when_the_majority_has_them() -> None:
    target = Target({"n": 1, "ok": 1})
    _load(target)
    [sent] = target.sent
    assert (sent["insert"], sent["writeConcern"]["w"]) == ("rows", "majority")
    with pytest.raises(SinkUnavailable, match="not durable yet"):
        _load(Target(_unsatisfied(91)))


class WithoutTransactions(Target):
    """As a capped collection is."""

    def start_session(self) -> nullcontext[Any]:
        return nullcontext(self)

    def start_transaction(self, **_: object) -> nullcontext[None]:
        raise OperationFailure("cannot delete from a capped collection in a multi-document transaction", 20)


def _edit(*answers: Mapping[str, Any]) -> Target:
    name = TableName("shop", "rows")
    row, update = bson.encode({"_id": 1, "l": [1, 2]}), {"truncatedArrays": [{"field": "l", "newSize": 1}]}
    target = WithoutTransactions({"cursor": {"firstBatch": [RawBSONDocument(row)]}}, *answers)
    commander = _commander(target)
    change = RowChange(
        TargetTable(id=TableId("a" * 32), source=name, name=name),
        RowType.UPDATE,
        bson.encode({"_id": 1}),
        None,
        bson.encode(update),
        ClusterTime(100, 1).to_int(),
        b"",
    )
    assert RowRewrite(commander, BatchSender(commander, CommandSizes(), None)).apply([change], viable=False).fits
    return target


def test_a_row_that_is_edited_without_a_transaction_is_written_when_the_majority_has_it() -> None:
    _, sent = _edit({"n": 1, "ok": 1}).sent
    assert (sent["update"], sent["writeConcern"]["w"]) == ("rows", "majority")
    with pytest.raises(SinkUnavailable, match="not durable yet"):
        _edit(_unsatisfied(91))


def _reply(term: int, increment: int) -> dict[str, Any]:
    return {"n": 1, "ok": 1, "opTime": {"ts": Timestamp(100, increment), "t": term}}


def test_writes_that_are_confirmed_together_wait_for_the_majority_once_and_last() -> None:
    target = Target(_reply(3, 5), _reply(3, 6), _reply(3, 7))
    commander = _commander(target)
    _send_together(commander)
    first, second, last = (command["writeConcern"] for command in target.sent)
    assert first == second == {"w": 1}
    assert last["w"] == "majority"


@pytest.mark.parametrize("at", [1, 2])
def test_writes_that_are_confirmed_together_are_those_of_one_primary(at: int) -> None:
    """Else an election may have taken some of them back before the majority had them."""
    terms = [3, 3, 3]
    terms[at:] = [4] * (3 - at)
    target = Target(*(_reply(term, 5 + number) for number, term in enumerate(terms)))
    commander = _commander(target)
    with pytest.raises(SinkUnavailable, match="elected another primary"):
        _send_together(commander)


def _send_together(commander: Commander) -> None:
    with commander.confirming_together("shop"):
        for _ in range(2):
            commander.send("shop", _INSERT, "insert")
