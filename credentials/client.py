"""`open_client`: a client of the driver for a connection string that may contain secrets."""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient
from pymongo import errors as driver

from changefeed.driver_text import in_one_line
from changefeed.errors import ConfigurationError
from credentials.proven_hosts import ProvenHosts
from credentials.redaction import redacted


def open_client(who: str, uri: str, **options: Any) -> MongoClient[dict[str, Any]]:
    """Does not connect yet. `who` is `source` or `sink`.

    The driver's texts show the part that it could not parse, which may contain a password: the cause of an error is dropped too.
    """
    try:
        return MongoClient(uri, event_listeners=[ProvenHosts()], **options)
    except (driver.InvalidURI, TypeError, ValueError):
        problem = "its connection string cannot be parsed; percent-escape user and password"
    except driver.ConfigurationError as error:
        problem = f"{redacted(in_one_line(str(error)))}; check its connection string"
    except OSError as error:
        problem = (
            f"a file that its connection string names cannot be used: {redacted(str(error))}; check its TLS options"
        )
    raise ConfigurationError([f"{who}: {problem}"])
