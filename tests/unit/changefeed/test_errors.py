"""Users and other nodes rely on the codes of errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from changefeed import errors
from changefeed.errors import ConfigurationError, RetryableError, SluiceError


def _tree(kind: type[SluiceError]) -> Iterator[type[SluiceError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _tree(narrower)


_KINDS = [kind for kind in _tree(SluiceError) if kind.__module__ == errors.__name__]


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in _KINDS]

    assert sorted(codes) == sorted(set(codes))


def test_the_docstring_draws_each_error() -> None:
    assert errors.__doc__ is not None
    undrawn = [kind.code for kind in _KINDS if kind.code not in errors.__doc__ and kind.__name__ not in errors.__doc__]

    assert undrawn == []


def test_the_handbook_explains_each_error() -> None:
    page = (Path(errors.__file__).parents[1] / "docs" / "reference" / "errors.md").read_text()
    bases = {"error", "retryable", "permanent"}

    assert [kind.code for kind in _KINDS if kind.code not in bases and f"`{kind.code}`" not in page] == []


def test_a_retryable_error_says_when_to_try_again() -> None:
    assert RetryableError("busy").retry_after == timedelta(seconds=1)
    assert RetryableError("busy", retry_after=timedelta(seconds=5)).retry_after == timedelta(seconds=5)


def test_a_configuration_error_carries_each_problem() -> None:
    error = ConfigurationError(["id: missing", "sink: missing"])

    assert error.problems == ("id: missing", "sink: missing")
    assert str(error) == "id: missing\nsink: missing"
