"""`hash_key`: the key of hashed fields, from the environment or a file of the node that needs it."""

from __future__ import annotations

import os

from changefeed.errors import ConfigurationError
from credentials.expansion import allowed
from credentials.redaction import keep_secret
from credentials.secret_files import SecretFiles
from credentials.secret_reading import read_secret


def hash_key(reference: str, files: SecretFiles | None = None) -> bytes:
    kind, _, name = reference[2:-1].partition(":")
    if kind == "file":
        key = read_secret(name, files or allowed())
    elif os.environ.get(name):
        key = os.environ[name]
    else:
        raise ConfigurationError([f"columns: the environment variable {name} is not set on this node; set it"])
    keep_secret(key)
    return key.encode()
