"""`oplog_obstacle`: whether the user may read the oplog of a source, tested by a read."""

from __future__ import annotations

from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from changefeed.config.capture_choice import MAJORITY_READS_DISABLED, ROUTER, Obstacle, not_allowed
from source.connection import Client, is_router
from source.errors import is_refusal, translated

_READ_CONCERN_MAJORITY_NOT_ENABLED = 148


def oplog_obstacle(client: Client) -> Obstacle | None:
    """None if the oplog can be read as the capture reads it. Raises other errors, for example that the source does not answer."""
    with translated("reading the oplog of the source"):
        if is_router(client):
            return ROUTER
        oplog = client.get_database("local", read_concern=ReadConcern("majority"))["oplog.rs"]
        try:
            oplog.find_one({}, {"ts": 1})
        except OperationFailure as error:
            if error.code == _READ_CONCERN_MAJORITY_NOT_ENABLED:
                return MAJORITY_READS_DISABLED
            if is_refusal(error):
                name = (error.details or {}).get("codeName", error.code)
                return not_allowed(f"the source answers {name}")
            raise
    return None
