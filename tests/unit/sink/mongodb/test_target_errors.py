from __future__ import annotations

import inspect

import pytest
from bson import errors as bson_errors
from pymongo import errors as pymongo_errors
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    NetworkTimeout,
    OperationFailure,
    WaitQueueTimeoutError,
    WTimeoutError,
)

from changefeed.errors import (
    ConfigurationError,
    DdlRefused,
    InvariantError,
    RetryableError,
    RowRejected,
    SinkRefused,
    SinkUnavailable,
    SluiceError,
)
from credentials.redaction import keep_secret, reveal
from sink.mongodb.target_errors import answer_of, duplicate_key, translate, translated
from tests.unit.changefeed.driver_texts import real_errors


def every_exception_class() -> list[type[Exception]]:
    classes = [*vars(pymongo_errors).values(), *vars(bson_errors).values()]
    return sorted(
        {
            c
            for c in classes
            if inspect.isclass(c) and issubclass(c, (pymongo_errors.PyMongoError, bson_errors.BSONError))
        },
        key=lambda c: c.__name__,
    )


def an_instance(kind: type[Exception]) -> Exception:
    if kind is BulkWriteError:
        return BulkWriteError({"writeErrors": [], "writeConcernErrors": []})
    if kind.__name__ == "ClientBulkWriteException":
        return kind({"writeErrors": [], "writeConcernErrors": []}, True)
    if kind.__name__ == "EncryptedCollectionError":
        return kind(Exception("cause"), {})
    if kind.__name__ == "EncryptionError":
        return kind(Exception("cause"))
    return kind("it says why")


EXPECTED: dict[str, type[SluiceError]] = {
    "PyMongoError": DdlRefused,
    "ProtocolError": SinkUnavailable,
    "ConnectionFailure": SinkUnavailable,
    "AutoReconnect": SinkUnavailable,
    "NetworkTimeout": SinkUnavailable,
    "NotPrimaryError": SinkUnavailable,
    "ServerSelectionTimeoutError": SinkUnavailable,
    "WaitQueueTimeoutError": SinkUnavailable,
    "_OperationCancelled": SinkUnavailable,
    "ConfigurationError": ConfigurationError,
    "InvalidURI": ConfigurationError,
    "InvalidOperation": InvariantError,
    "InvalidName": DdlRefused,
    "CollectionInvalid": DdlRefused,
    "OperationFailure": DdlRefused,
    "CursorNotFound": DdlRefused,
    "ExecutionTimeout": DdlRefused,
    "WriteConcernError": DdlRefused,
    "WriteError": DdlRefused,
    "WTimeoutError": DdlRefused,
    "DuplicateKeyError": DdlRefused,
    "BulkWriteError": DdlRefused,
    "ClientBulkWriteException": DdlRefused,
    "EncryptionError": DdlRefused,
    "EncryptedCollectionError": DdlRefused,
    "BSONError": DdlRefused,
    "InvalidBSON": DdlRefused,
    "InvalidStringData": DdlRefused,
    "InvalidDocument": DdlRefused,
    "InvalidId": DdlRefused,
    "DocumentTooLarge": DdlRefused,
}
"""Operation failures are distinguished by their codes, which these bare instances lack."""


@pytest.mark.parametrize("kind", every_exception_class(), ids=lambda c: c.__name__)
def test_every_exception_class_of_the_driver_has_a_meaning(kind: type[Exception]) -> None:
    translation = translate(an_instance(kind), doing="drop on shop.orders", refused=DdlRefused)
    assert type(translation) is EXPECTED[kind.__name__]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (24, "LockTimeout"),
        (50, "MaxTimeMSExpired"),
        (64, "WriteConcernTimeout"),
        (91, "ShutdownInProgress"),
        (112, "WriteConflict"),
        (189, "PrimarySteppedDown"),
        (215, "DatabaseDropPending"),
        (262, "ExceededTimeLimit"),
        (276, "IndexBuildAborted"),
        (285, "IndexBuildAlreadyInProgress"),
        (371, "UserWritesBlocked"),
        (10107, "NotWritablePrimary"),
        (11600, "InterruptedAtShutdown"),
        (12587, "BackgroundOperationInProgressForNamespace"),
        (13388, "StaleConfig"),
        (14031, "OutOfDiskSpace"),
    ],
)
def test_what_may_pass_by_itself_is_retried(code: int, name: str) -> None:
    answer = OperationFailure("no", code, {"errmsg": "not now", "codeName": name, "code": code})
    translation = translate(answer, doing="drop on shop.orders", refused=DdlRefused)
    assert isinstance(translation, RetryableError)
    assert str(translation) == f"drop on shop.orders: the target answers: not now (code {code}, {name})"


def test_an_unknown_code_with_a_retryable_label_is_retried() -> None:
    answer = OperationFailure("no", 99999, {"errmsg": "soon", "errorLabels": ["RetryableWriteError"]})
    assert type(translate(answer, doing="insert", refused=RowRejected)) is SinkUnavailable


@pytest.mark.parametrize(("code", "remedy"), [(13, "the roles that"), (18, "the user or the password")])
def test_missing_privileges_and_wrong_passwords_ask_for_somebody(code: int, remedy: str) -> None:
    answer = OperationFailure("no", code, {"errmsg": "not authorized on shop"})
    translation = translate(answer, doing="drop on shop.orders", refused=DdlRefused)
    assert type(translation) is SinkRefused
    assert remedy in str(translation)


def test_atlas_tells_a_wrong_password_from_a_spent_quota_by_its_text_only() -> None:
    password = OperationFailure("bad auth : authentication failed", 8000)
    quota = OperationFailure("you are over your space quota, using 513 MB of 512 MB", 8000)
    assert type(translate(password, doing="insert", refused=RowRejected)) is SinkRefused
    assert type(translate(quota, doing="insert", refused=RowRejected)) is SinkUnavailable


def test_a_plain_no_is_what_the_caller_names() -> None:
    answer = OperationFailure("no", 121, {"errmsg": "Document failed validation"})
    assert type(translate(answer, doing="insert", refused=RowRejected)) is RowRejected
    assert type(translate(answer, doing="create", refused=DdlRefused)) is DdlRefused


@pytest.mark.parametrize(
    "error", [AutoReconnect("gone"), NetworkTimeout("slow"), WaitQueueTimeoutError("full"), WTimeoutError("late", 64)]
)
def test_the_context_raises_the_translation_and_keeps_the_cause(error: Exception) -> None:
    with pytest.raises(SinkUnavailable) as caught, translated("drop on shop.orders"):
        raise error
    assert caught.value.__cause__ is error


def test_a_refused_unique_index_says_which_key_is_there_twice() -> None:
    answer = OperationFailure("E11000", 11000, {"keyPattern": {"code": 1}, "keyValue": {"code": "A7"}})
    assert duplicate_key(answer) == ({"code": 1}, {"code": "A7"})


@pytest.mark.parametrize("error", real_errors(), ids=lambda error: type(error).__name__)
def test_a_real_error_becomes_one_line_without_the_drivers_own_affairs(error: pymongo_errors.PyMongoError) -> None:
    message = str(translate(error, doing="insert into shop.a", refused=RowRejected))
    assert message.startswith("insert into shop.a: the target")
    assert len(message.splitlines()) == 1
    assert len(message) < 250
    assert not [word for word in ("Topology", "full error", "configured timeouts", "clusterTime") if word in message]


@pytest.mark.parametrize(
    "error", [OperationFailure("user hunter2hunter2 is unknown", 18), AutoReconnect("hunter2hunter2:1")]
)
def test_no_error_of_the_target_shows_a_secret(error: Exception) -> None:
    """Servers and the driver repeat what they were given."""
    keep_secret("hunter2hunter2")
    try:
        assert "hunter2" not in answer_of(error)
        assert "hunter2" not in str(translate(error, doing="insert into shop.a", refused=RowRejected))
    finally:
        reveal("hunter2hunter2")
