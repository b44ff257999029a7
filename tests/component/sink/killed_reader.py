"""`Death`: kills a replica at one of its steps, as kill -9; and what a test of that needs to know of the target."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from devstack.mongodb.server import Client
from sink.messages.replica import MongoReplica
from sink.messages.replica_place import StoredPlace
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.rows.write_run import WriteRun

MORTAL = ((StoredPlace, "save"), (MongoDdlApplier, "apply"), (MongoReplica, "_empty"), (WriteRun, "_apply"))
"""What changes the target."""


class Killed(BaseException):
    """No line of the reader handles it."""


class Death:
    """Comes at one of the steps: before and after each call of what changes the target."""

    def __init__(self) -> None:
        self.left: int | None = None

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def watches(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        called = getattr(kind, name)

        def mortal(*arguments: Any, **options: Any) -> Any:
            self.step()
            result = called(*arguments, **options)
            self.step()
            return result

        monkeypatch.setattr(kind, name, mortal)

    def ends(self, read: Callable[[], None], steps: int) -> bool:
        """Whether the reader died at this step; else it has done all of them."""
        self.left = steps
        try:
            read()
        except Killed:
            return True
        finally:
            self.left = None
        return False


def state(client: Client) -> dict[str, Any]:
    shop = client["shop"]
    return {
        name: (list(shop[name].find().sort("_id", 1)), shop[name].index_information())
        for name in sorted(shop.list_collection_names())
    }


def goes_on_from_each_step(
    death: Death,
    every: int,
    grown: Callable[[int], Any],
    rest: Callable[[Any], None],
    read: Callable[[Any], None],
    emptied: Callable[[], None],
    target: Client,
) -> None:
    """`grown`: a feed of the first parts, that nobody has read; `rest`: the other parts. It is killed while it reads the first parts, and again
    while it reads all.
    """
    whole = grown(-1)
    rest(whole)
    read(whole)
    expected = state(target)
    assert list(expected) == ["c", "d"]
    assert all(documents for documents, _ in expected.values())
    for steps in count(3, every):
        emptied()
        feed = grown(steps)
        died = death.ends(partial(read, feed), steps)
        rest(feed)
        death.ends(partial(read, feed), steps // 2)
        read(feed)
        assert state(target) == expected, f"killed after {steps} steps"
        if not died:
            return
