"""`listed`, `requested`, `dropped`: lists, requests and drops the dead letters of a changefeed, in the target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager

from admin.cluster_reader import tables_of
from admin.services.changefeed_messages import alike
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config.configuration import OnRejected
from changefeed.errors import NotFoundError, WrongState
from changefeed.table import TableId
from credentials.secrets import expanded
from owner.etcd_view import OwnerView
from sink.mongodb.connection import connect
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.letters.stored_letters import StoredLetter, StoredLetters, named


def listed(known: OwnerView, table: str) -> Iterator[pb.RejectedRow]:
    with _opened(known) as stored:
        for letter in stored.of(table or None, _ids(known, table)):
            yield _message(letter)


def requested(known: OwnerView, table: str, keys: Sequence[str], record: Callable[[int], None]) -> int:
    """The rows are tried by the node that has their table."""
    configuration = known.info.configuration
    if configuration.when_rejected is not OnRejected.DEAD_LETTER:
        raise WrongState(
            f"changefeed {configuration.id!r} has on_rejected: {configuration.when_rejected}, so it tries no rejected rows; set "
            "on_rejected: dead_letter, or drop the letters"
        )
    living = {schema.id for schema in tables_of(known).living}
    with _opened(known) as stored:
        chosen = [letter for letter in _chosen(known, stored, table, keys) if letter.table_id in living]
        if not chosen:
            raise NotFoundError(
                f"changefeed {configuration.id!r} has no rejected rows of {table} that can be tried again: their table no longer exists at "
                f"the source; drop them: `sluice table drop-rejected {configuration.id} {table}`"
            )
        record(len(chosen))
        stored.request(chosen)
    return len(chosen)


def dropped(known: OwnerView, table: str, keys: Sequence[str], record: Callable[[int], None]) -> int:
    with _opened(known) as stored:
        chosen = _chosen(known, stored, table, keys)
        record(len(chosen))
        return stored.drop(chosen)


@contextmanager
def _opened(known: OwnerView) -> Iterator[StoredLetters]:
    configuration = known.info.configuration
    if configuration.dead_letter is None:
        raise WrongState(
            f"changefeed {configuration.id!r} keeps no rejected rows: it has no dead_letter; pause it and update its configuration with one, "
            "for example dead_letter: sluice.rejected"
        )
    box = LetterBox(collection=configuration.dead_letter, changefeed=configuration.id)
    with closing(connect(expanded(configuration.sink))) as client:
        yield StoredLetters(client, box)


def _chosen(known: OwnerView, stored: StoredLetters, table: str, keys: Sequence[str]) -> list[StoredLetter]:
    letters = list(stored.of(table, _ids(known, table)))
    found = {key: named(letters, key) for key in keys}
    missing = [key for key, letters in found.items() if not letters]
    if not letters or missing:
        row = f" with the key {missing[0]}" if missing else ""
        id = known.info.configuration.id
        raise NotFoundError(
            f"changefeed {id!r} has no rejected row of {table}{row}; `sluice table rejected {id}` lists its rejected rows"
        )
    chosen = {letter.id: letter for each in found.values() for letter in each}
    return list(chosen.values()) if keys else letters


def _ids(known: OwnerView, table: str) -> Collection[TableId]:
    return {schema.id for schema in tables_of(known).living if table in ("", schema.id, str(schema.name))}


def _message(letter: StoredLetter) -> pb.RejectedRow:
    told = alike(letter, "table", "table_id", "key", "first_position", "position", "tries", "error", "type")
    times = alike(letter, "first_rejected_at", "rejected_at")
    return pb.RejectedRow(retry_requested=letter.requested, **told, **times)
