"""Validators of the target: rows are written past them, by a user who may; the collection of the dead letters keeps its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from changefeed.errors import RowRejected, SinkRefused
from changefeed.event import RowType
from changefeed.table import TableName
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security
from devstack.mongodb.server import Client
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import RowChange
from tests.component.sink.mongodb.rows.written_rows import Rows, keys_in, made, permit, table_of

_NO_ROW = {"never": {"$exists": True}}
"""A validator that refuses each document of these tests."""
_FILLS = {"role": "readWrite", "db": "shop"}
_KEEPS = {"role": "dbAdmin", "db": "shop"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    directory = tmp_path_factory.mktemp("secured")
    with ReplicaSet("secured", directory, directory, size=1, security=Security(directory / "security")) as members:
        yield members


def _writer(client: Client, database: str) -> MongoRowWriter:
    letters = TableName(database, "letters")
    options = RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed"))
    return MongoRowWriter(client, permit=permit, options=options)


def _history(rows: Rows) -> list[RowChange]:
    """Two rows exchange a unique value at the end, for which the writer needs a transaction."""
    table = table_of(rows, ordered=True)

    def sets(key: int, **fields: object) -> RowChange:
        return made(table, RowType.UPDATE, key, update={"updatedFields": fields})

    return [
        *(made(table, RowType.INSERT, key, {"u": key}) for key in range(5)),
        made(table, RowType.REPLACE, 1, {"u": 1, "n": {"$e": 1}}),
        sets(2, v=1),
        sets(2, **{"n.m": 1}),
        sets(3, u=4),
        sets(4, u=3),
    ]


@pytest.mark.parametrize("replay", [False, True])
def test_a_validator_refuses_no_row(target: Rows, replay: bool) -> None:
    target.database.create_collection(target.name, validator=_NO_ROW).create_index("u", unique=True)
    writer = _writer(target.database.client, target.database.name)
    result = writer.write(_history(target), replay=replay)
    assert (result.tally.rejected, target.database["letters"].count_documents({})) == (0, 0)
    assert list(target.find(sort=[("_id", 1)])) == [
        {"_id": 0, "u": 0},
        {"_id": 1, "u": 1, "n": {"$e": 1}},
        {"_id": 2, "u": 2, "v": 1, "n": {"m": 1}},
        {"_id": 3, "u": 4},
        {"_id": 4, "u": 3},
    ]


def test_a_user_who_may_not_write_past_validators_is_told_so_and_no_row_is_blamed(secured: ReplicaSet) -> None:
    """A server refuses the whole command, whether or not the table has a validator."""
    with secured.client(w="majority") as administrator, Client(secured.uri_of("writer", "p")) as client:
        rows = administrator["shop"]["rows"]
        administrator.admin.command("createUser", "writer", pwd="p", roles=[_FILLS])
        writer = _writer(client, rows.database.name)
        insert = made(table_of(rows), RowType.INSERT, 7, {"v": 1})
        with pytest.raises(
            SinkRefused, match=r"not authorized .* grant the sink's user the roles that docs/how-to/privileges"
        ) as raised:
            writer.write([insert], replay=False)
        assert (raised.value.table, administrator["shop"].list_collection_names()) == (None, [])

        administrator.admin.command("updateUser", "writer", roles=[_FILLS, _KEEPS])
        administrator["shop"].create_collection("rows", validator=_NO_ROW)
        result = writer.write([insert], replay=True)
        assert (result.tally.rejected, rows.find_one()) == (0, {"_id": 7, "v": 1})


def test_a_letter_that_its_own_collection_refuses_stops_the_table(target: Rows) -> None:
    """A letter is the only copy of a refused row at the target: what it needs is no row's fault."""
    target.create_index("u", unique=True)
    target.insert_one({"_id": "foreign", "u": 1})
    target.database.create_collection("letters", validator=_NO_ROW)
    writer = _writer(target.database.client, target.database.name)
    insert = made(table_of(target, ordered=True), RowType.INSERT, 7, {"u": 1})
    with pytest.raises(RowRejected, match=r"insert of .*'_id': 7.*E11000") as raised:
        writer.write([insert], replay=False)
    refused = (
        "letters refuses the dead letter: Document failed validation; remove the cause there, and resume the table"
    )
    assert refused in str(raised.value)
    assert raised.value.table == insert.table.id

    target.database.command("collMod", "letters", validator={})
    assert keys_in(writer.write([insert], replay=True)) == ["{'_id': 7}"]
    assert target.database["letters"].count_documents({"key": '{"_id": 7}'}) == 1
