"""`read_secret`: the content of a file that `SecretFiles` allows."""

from __future__ import annotations

import os
from pathlib import Path

from changefeed.errors import ConfigurationError
from credentials.secret_files import SecretFiles

_ACCOUNT = "kubernetes.io"
_MOST_BYTES = 64 << 10


def read_secret(name: str, files: SecretFiles) -> str:
    """The one line of the file. The errors do not show whether a file exists that may not be read."""
    path = os.path.realpath(name)
    homes = [home for each in files.directories if _inside(path, home := os.path.realpath(each))]
    if not homes:
        allowed = ", ".join(files.directories) or "none"
        problem = (
            f"the file {name} is outside the directories from which this node reads secrets ({allowed}): move it there, "
            "or name its directory in secret_directories of the node's configuration"
        )
        raise ConfigurationError([problem])
    if path in map(os.path.realpath, files.own) or any(_ACCOUNT in Path(path[len(home) :]).parts for home in homes):
        raise ConfigurationError(
            [f"the file {name} is a secret of the node itself; give the source and the sink files of their own"]
        )
    return _line(name, Path(path))


def _inside(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def _line(name: str, path: Path) -> str:
    try:
        if not path.is_file():
            raise ConfigurationError(
                [f"the file {name} cannot be read on this node: there is no such file; check its name"]
            )
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode().strip()
    except OSError as error:
        raise ConfigurationError([f"the file {name} cannot be read on this node: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigurationError([f"the file {name} is no text; write one line in UTF-8"]) from None
    if len(content) > _MOST_BYTES or not text or not text.isprintable():
        raise ConfigurationError([f"the file {name}: expected one line of text, found another content"])
    return text
