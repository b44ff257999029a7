"""What a refusal of the target is about: a row, or a state of the target that passes; and how it is told."""

from __future__ import annotations

from bson.errors import BSONError
from pymongo.errors import OperationFailure

from changefeed.errors import RowRejected
from sink.mongodb.errors import answer_of, retryable_code
from sink.mongodb.rows.bulk_command import Refusal
from sink.row import RowChange

IMMUTABLE = 66
DOLLAR_NAME = 52
"""DollarPrefixedFieldName: servers before 5.0 refuse such a name inside a document, except in an insert."""
NO_TRANSACTION = frozenset({20, 263})
"""IllegalOperation, OperationNotSupportedInTransaction: a capped collection allows no delete in it, a standalone server has none."""
_MISFIT = frozenset({2, 28, IMMUTABLE})
"""BadValue, PathNotViable, ImmutableField: errors of an update, not of the resulting document."""
_TOO_LARGE = frozenset({10334, 17419, 17420})
_ABOUT_A_ROW = _TOO_LARGE | {2, 9, 14, 15, 22, 40, 52, 56, 57}
"""BadValue, FailedToParse, TypeMismatch, Overflow, InvalidBSON, and refused paths and names."""


def passing(refusal: Refusal) -> bool:
    return retryable_code(refusal.code, refusal.message)


def misfit(refusal: Refusal) -> bool:
    """An error when a pipeline is evaluated has one of the server's many assertion numbers, all from 10000 on."""
    return refusal.code in _MISFIT or (refusal.code >= 10_000 and refusal.code not in _TOO_LARGE)


def about_a_row(error: RowRejected) -> bool:
    """Whether the target refused a command because of one of its statements, and not because of the target's own state."""
    cause = error.__cause__
    return isinstance(cause, BSONError) or (isinstance(cause, OperationFailure) and cause.code in _ABOUT_A_ROW)


def refusal_in(error: RowRejected) -> Refusal | None:
    cause = error.__cause__
    if not isinstance(cause, OperationFailure):
        return None
    return Refusal(index=0, code=cause.code or 0, message=answer_of(cause))


def told(change: RowChange, refusal: Refusal) -> str:
    return f"{change}: {change.table.name} answers: {refusal.message} (code {refusal.code})"
