"""`read_principals`: the users and roles of the source, with their credentials. Nothing of them may be logged."""

from __future__ import annotations

from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import ReadPreference
from pymongo.read_concern import ReadConcern

from changefeed.users import Principals, own_users
from source.connection import Client
from source.errors import translated

_STORED: CodecOptions[dict[str, Any]] = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)
"""A user's custom data may hold any date."""
_PATIENCE_MS = 5_000
"""Such a read waits until the majority has confirmed the primary."""


def read_principals(client: Client) -> Principals:
    """As the majority has them now, whichever members the changefeed prefers: a member that is behind lacks users, which would be dropped."""
    with translated("reading the source's users and roles"):
        admin = client.get_database(
            "admin",
            codec_options=_STORED,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("linearizable"),
        )
        users = {str(user["_id"]): user for user in admin["system.users"].find({}, max_time_ms=_PATIENCE_MS)}
        roles = {str(role["_id"]): role for role in admin["system.roles"].find({}, max_time_ms=_PATIENCE_MS)}
        status = admin.command("connectionStatus")
    return Principals(users=users, roles=roles, own=own_users(status))
