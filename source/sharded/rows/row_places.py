"""`RowPlaces`: the place of each row of a shard among all rows of the cluster that take effect at one time. Pure.

A document moves from one shard to another in two ways: with its chunk, and then the next operation has a later time; or by a change of its
shard key, a delete and an insert of one transaction, at one time. So the operations of a document on a shard at one time are *stays* there, each from
an insert to a delete, and a place begins with the turn of its stay, which the shard can tell by itself:

    01   the document was there before. Where it moves, this is the first stay
    02   inserted and deleted: it passes through
    03   inserted, and left there: the last stay

Then come the digits of the shard, and the number of the operation among those of the shard at that time:

                                    turn  shard            number
    302.40   sb   insert 7      302.40/ 03    AD25CB01883767   00000000      in order:   sa   update 7
    302.40   sa   update 7      302.40/ 01    3655EFD20DBE4F   00000000                  sa   delete 7
    302.40   sa   delete 7      302.40/ 01    3655EFD20DBE4F   00000001                  sb   insert 7

No two rows of a cluster have one place, and it is the same each time that they are read: it comes from the oplog of one shard, in which several entries may
take effect at one time, but all of them are in one window.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache

from changefeed.documents.row_key import row_key
from source.oplog.row_entry import ROWS
from source.raw_row import Header
from source.sharded.effective_order import digits_of
from source.sharded.rows.merge import ShardRow
from source.stream.change_event import table_name

_STAYS, _PASSES, _ARRIVES = b"01", b"02", b"03"
_INSERT, _DELETE = b"insert", b"delete"


class RowPlaces:
    def __init__(self, shard: str) -> None:
        self._shard = digits_of(shard).encode()

    @property
    def alone(self) -> tuple[bytes, bytes]:
        """The place of a row that is the only one of its time there, as almost each one is, and that of an insert. The scan of a row gives it."""
        return self._place(_STAYS, 0), self._place(_ARRIVES, 0)

    def together(self, rows: Sequence[tuple[bytes, Header]]) -> list[ShardRow]:
        """All of one time there, in the order of the shard. They come back in that of their places."""
        places = [self._place(turn, number) for number, turn in enumerate(_turns([header for _, header in rows]))]
        return sorted(
            (header.time, place, entry, header._replace(token=place))
            for (entry, header), place in zip(rows, places, strict=True)
        )

    def _place(self, turn: bytes, number: int) -> bytes:
        return b"%s%s%08X" % (turn, self._shard, number)


def _turns(headers: Sequence[Header]) -> list[bytes]:
    stays: list[list[int]] = []
    open_ones: dict[Hashable, list[int]] = {}
    for number, header in enumerate(headers):
        document = (header.uuid, row_key(header.key)) if of_user(header) else number
        if document not in open_ones:
            stays.append(open_ones.setdefault(document, []))
        open_ones[document].append(number)
        if header.type == _DELETE:
            del open_ones[document]
    turns = [_STAYS] * len(headers)
    for stay in stays:
        if headers[stay[0]].type == _INSERT:
            turn = _PASSES if headers[stay[-1]].type == _DELETE else _ARRIVES
            for number in stay:
                turns[number] = turn
    return turns


def of_user(header: Header) -> bool:
    """Whether it is a write of a user to its owner, by the header that `row_scan` gives. What is none has no order among others."""
    return header.type in ROWS and _of_users(header.ns)


@lru_cache(maxsize=10_000)
def _of_users(ns: bytes) -> bool:
    name = table_name(ns)
    return name is not None and not name.system
