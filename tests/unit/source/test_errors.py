"""Each exception of the driver, and the server codes that decide what happens to a changefeed."""

from __future__ import annotations

import inspect

import pytest
from bson.errors import BSONError, InvalidBSON
from pymongo import errors as driver

from changefeed.errors import (
    ConfigurationError,
    HistoryLost,
    InvariantError,
    PermanentError,
    RetryableError,
    SluiceError,
    SourceRefused,
    SourceUnavailable,
    SourceUnsupported,
)
from source.errors import translate, translated
from tests.unit.changefeed.driver_texts import real_errors

EXPECTED: dict[str, type[SluiceError]] = {
    "PyMongoError": SourceUnavailable,
    "ProtocolError": SourceUnavailable,
    "ConnectionFailure": SourceUnavailable,
    "WaitQueueTimeoutError": SourceUnavailable,
    "AutoReconnect": SourceUnavailable,
    "NetworkTimeout": SourceUnavailable,
    "NotPrimaryError": SourceUnavailable,
    "ServerSelectionTimeoutError": SourceUnavailable,
    "ConfigurationError": ConfigurationError,
    "OperationFailure": SourceUnavailable,
    "CursorNotFound": SourceUnavailable,
    "ExecutionTimeout": SourceUnavailable,
    "WriteConcernError": SourceUnavailable,
    "WriteError": SourceUnavailable,
    "WTimeoutError": SourceUnavailable,
    "DuplicateKeyError": SourceUnavailable,
    "BulkWriteError": SourceUnavailable,
    "ClientBulkWriteException": SourceUnavailable,
    "InvalidOperation": InvariantError,
    "InvalidName": ConfigurationError,
    "CollectionInvalid": InvariantError,
    "InvalidURI": ConfigurationError,
    "DocumentTooLarge": PermanentError,
    "EncryptionError": PermanentError,
    "EncryptedCollectionError": PermanentError,
    "_OperationCancelled": SourceUnavailable,
}


def driver_classes() -> list[type[Exception]]:
    return [
        kind
        for _, kind in inspect.getmembers(driver, inspect.isclass)
        if issubclass(kind, driver.PyMongoError | BSONError) and kind.__module__ == driver.__name__
    ]


def made(kind: type[Exception]) -> Exception:
    if issubclass(kind, driver.BulkWriteError | driver.ClientBulkWriteException):
        return kind({}, verbose=True) if issubclass(kind, driver.ClientBulkWriteException) else kind({})
    if issubclass(kind, driver.EncryptedCollectionError):
        return kind(ValueError("no key"), {})
    if issubclass(kind, driver.EncryptionError):
        return kind(ValueError("no key"))
    return kind("it broke")


@pytest.mark.parametrize("kind", driver_classes(), ids=lambda kind: kind.__name__)
def test_each_exception_of_the_driver_has_its_place_in_the_error_tree(kind: type[Exception]) -> None:
    error = made(kind)
    assert isinstance(error, driver.PyMongoError | BSONError)
    translation = translate(error, "reading the source")
    assert type(translation) is EXPECTED[kind.__name__]
    assert "reading the source" in str(translation)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (286, HistoryLost),
        (136, SourceUnavailable),
        (13, SourceRefused),
        (18, SourceRefused),
        (8000, SourceRefused),
        (2, SourceUnsupported),
        (40573, SourceUnsupported),
        (40415, SourceUnsupported),
        (59, SourceUnsupported),
        (6, SourceUnavailable),
        (7, SourceUnavailable),
        (43, SourceUnavailable),
        (50, SourceUnavailable),
        (63, SourceUnavailable),
        (89, SourceUnavailable),
        (91, SourceUnavailable),
        (133, SourceUnavailable),
        (189, SourceUnavailable),
        (222, SourceUnavailable),
        (234, SourceUnavailable),
        (237, SourceUnavailable),
        (260, SourceUnavailable),
        (262, SourceUnavailable),
        (280, SourceUnavailable),
        (9001, SourceUnavailable),
        (10107, SourceUnavailable),
        (11600, SourceUnavailable),
        (11601, SourceUnavailable),
        (11602, SourceUnavailable),
        (13388, SourceUnavailable),
        (13435, SourceUnavailable),
        (13436, SourceUnavailable),
        (999999, SourceUnavailable),
    ],
)
def test_a_servers_code_decides(code: int, expected: type[SluiceError]) -> None:
    assert type(translate(driver.OperationFailure("no", code), "reading the source")) is expected


def test_a_lost_cursor_is_opened_again_sooner_than_a_lost_server() -> None:
    cursor = translate(driver.CursorNotFound("gone", 43), "reading")
    server = translate(driver.AutoReconnect("gone"), "reading")
    assert isinstance(cursor, RetryableError)
    assert isinstance(server, RetryableError)
    assert cursor.retry_after < server.retry_after


def test_the_context_manager_keeps_the_cause() -> None:
    with pytest.raises(PermanentError) as caught, translated("reading the catalog of the source"):
        raise InvalidBSON("cut off")
    assert isinstance(caught.value.__cause__, InvalidBSON)
    assert str(caught.value) == "reading the catalog of the source: cut off"


@pytest.mark.parametrize("error", real_errors(), ids=lambda error: type(error).__name__)
def test_a_real_error_becomes_one_line_without_driver_internals(error: driver.PyMongoError) -> None:
    message = str(translate(error, "reading the source"))
    assert message.startswith("reading the source: the source")
    assert len(message.splitlines()) == 1
    assert len(message) < 250
    assert not [word for word in ("Topology", "full error", "configured timeouts", "clusterTime") if word in message]
