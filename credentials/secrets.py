"""The secrets that a process uses: connection strings with their references replaced, files of secrets, and keys of hashed fields.

Everything secret is known to `credentials.redaction` before anybody can use it. `stamp` tells whether files were replaced, `FreshFiles` reads them
again then.
"""

from __future__ import annotations

import ipaddress
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote_plus

import structlog
from pymongo.common import URI_OPTIONS_VALIDATOR_MAP

from changefeed.config.options import Mistake
from changefeed.config.uri import SECRET_OPTIONS, ConnectionUri
from changefeed.errors import ConfigurationError, SluiceError
from credentials.redaction import keep_secret
from credentials.secret_files import SecretFiles

DEFAULT_PORT = 27017
_STRICT = re.compile(r"[a-z0-9+]+://(?:(?P<user>[^@/?]*)@)?(?P<hosts>[^@/?]*)(?P<rest>[/?][^@]*)?", re.DOTALL)
_LOOSE = re.compile(r"[a-z0-9+]+://(?:(?P<user>.*)@)?(?P<hosts>[^@/?]*)(?P<rest>.*)", re.DOTALL)
_MARKS = re.compile(r"[@:/?&=,;\s]+")
_SHORTEST_PIECE = 4
_FILE_OPTIONS = frozenset({"tlscafile", "tlscertificatekeyfile", "tlscrlfile"})
_ORDINARY = frozenset({"true", "false", "admin", "localhost"})

_log = structlog.get_logger()
_allowed = SecretFiles()
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Expansion:
    """Equal to a later one if nothing changed that a client was made of: what references contain, and the files of TLS."""

    uri: str
    files: Stamp


def allow(files: SecretFiles) -> None:
    """Sets which files this process may read, once, when it starts."""
    global _allowed  # noqa: PLW0603 - as much a fact of the process as its environment
    _allowed = files


def allowed() -> SecretFiles:
    return _allowed


def expanded(uri: ConnectionUri, files: SecretFiles | None = None) -> str:
    """Everything in it that is secret is known to `redacted` before anybody can use it."""
    files, inserted = files or _allowed, list[str]()
    try:
        text = uri.expand(os.environ, partial(read_secret, files=files), inserted.append)
    except ConfigurationError as error:
        raise ConfigurationError([f"{uri}: {problem}" for problem in error.problems]) from None
    keep_secret(*_secrets(uri, text, inserted))
    try:
        ConnectionUri.parse(text)
    except Mistake as mistake:
        raise ConfigurationError([f"{uri}: its references give no connection string: {mistake}"]) from None
    return text


def expansion(uri: ConnectionUri, files: SecretFiles | None = None) -> Expansion:
    text = expanded(uri, files)
    options = parse_qsl(text.partition("?")[2])
    return Expansion(text, stamp(value for name, value in options if name.lower() in _FILE_OPTIONS))


def _secrets(uri: ConnectionUri, text: str, inserted: list[str]) -> Iterator[str]:
    """The name of a user is none, unless it has no password: servers and grants name users.

    A host that a reference gave is one until it has answered (`ProvenHosts`): it may be a password in the wrong place.
    """
    parts = _STRICT.fullmatch(text) or _LOOSE.fullmatch(text)
    if parts is None:
        yield from inserted
        return
    user, has_password, password = (parts["user"] or "").partition(":")
    if has_password:
        yield password
        yield from _pieces(unquote_plus(password))
    elif user and "authmechanism=" not in text.lower():
        yield user
    yield from (value for value in inserted if value != user)
    written = {_host(address)[0] for address in uri.hosts}
    for host, port in map(_host, parts["hosts"].split(",")):
        if host.lower() not in written and not _ordinary(host):
            yield from texts_of_host(host, port)
    options = parse_qsl((parts["rest"] or "").partition("?")[2], keep_blank_values=True)
    yield from (value for name, value in options if name.lower() in SECRET_OPTIONS)
    if any(name.lower() not in URI_OPTIONS_VALIDATOR_MAP for name, _ in options):
        yield from (piece for value in inserted for piece in _pieces(value) if not _ordinary(piece))


def _pieces(text: str) -> Iterator[str]:
    """Errors of a parser show parts of what it could not parse."""
    return (piece for piece in _MARKS.split(text) if len(piece) >= _SHORTEST_PIECE)


def texts_of_host(host: str, port: int) -> tuple[str, ...]:
    """Return the texts in which the driver shows a host."""
    return f"{host}:{port}", f"('{host}', {port})", f"_tcp.{host}"


def _host(address: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?P<host>\[[^\]]*\]|.*?)(?::(?P<port>\d*))?", address, re.DOTALL)
    assert found is not None
    return found["host"].strip("[]"), int(found["port"] or DEFAULT_PORT)


def _ordinary(word: str) -> bool:
    """Whether a word is no secret wherever it stands."""
    if word.lower() in _ORDINARY or word.lower() in URI_OPTIONS_VALIDATOR_MAP:
        return True
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return not word
    return True


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


Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


def stamp(paths: Iterable[Path | str]) -> Stamp:
    """Two stamps of the same paths differ if a file was written or replaced between them. A mounted Secret is replaced by a symbolic link."""
    return tuple(_of(Path(path)) for path in paths)


def _of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class FreshFiles(Generic[T]):
    """What was read of files. It is read again once they are replaced; the former value stays while they are damaged, or do not belong together
    since they are replaced one by one.
    """

    def __init__(self, name: str, paths: Iterable[Path], read: Callable[[], T]) -> None:
        """`name`: of the files, for the log. Raises what `read` raises."""
        self._name = name
        self._paths = tuple(paths)
        self._read = read
        self._lock = threading.Lock()
        self._stamp = self._tried = stamp(self._paths)
        self._value = read()

    def value(self) -> T:
        with self._lock:
            found = stamp(self._paths)
            if found != self._stamp:
                try:
                    self._value, self._stamp = self._read(), found
                except (OSError, SluiceError) as error:
                    if found != self._tried:
                        _log.error("files_not_read_again", files=self._name, error=str(error))
                else:
                    _log.info("files_read_again", files=self._name)
                self._tried = found
            return self._value
