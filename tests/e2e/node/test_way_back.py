"""A migration with a way back: users move to the target, write there, and return. Both sides' users have passwords, since only then a block binds them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import PyMongoError, WriteError

from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import MongoDB
from tests.component.node.server_process import Server
from tests.forgetful import forget
from tests.secured import secured_pair
from tests.until import until

pytestmark = [
    pytest.mark.since("6.0"),
    pytest.mark.costly("two replica sets with users, a node with Spark, and a migration there and back"),
]

_OLD, _NEW = "shop", "dr"
_TTL = 5_000
_NEVER = 2**31 - 1


@pytest.fixture
def sets(tmp_path: Path) -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    with secured_pair(tmp_path) as pair:
        for members in pair:
            with members.client() as administrator:
                administrator.admin.command("createUser", "sluice", pwd="sluice", roles=["root"])
                administrator.admin.command(
                    "createUser", "app", pwd="app", roles=["readWriteAnyDatabase", "dbAdminAnyDatabase"]
                )
        yield pair


def test_users_move_to_the_target_write_there_and_return(
    sets: tuple[ReplicaSet, ReplicaSet], etcd_endpoint: str, tmp_path: Path
) -> None:
    old, new = sets
    uris = [members.uri_of("sluice", "sluice") for members in sets]
    with (
        MongoClient[Any](old.uri_of("app", "app"), tz_aware=True) as at_old,
        MongoClient[Any](new.uri_of("app", "app"), tz_aware=True) as at_new,
        Server(etcd_endpoint, tmp_path / "log", roles="owner,processor") as node,
    ):
        here, there = at_old[_OLD], at_new[_NEW]
        here["people"].create_index("email", unique=True)
        here["people"].insert_many([{"_id": n, "email": f"{n}@a"} for n in range(100)])
        here["sessions"].create_index("at", expireAfterSeconds=_TTL)
        soon = datetime.now(UTC) - timedelta(seconds=_TTL)
        here["sessions"].insert_many([{"_id": n, "at": soon + timedelta(seconds=n / 4)} for n in range(400)])
        here.create_collection("measures", timeseries={"timeField": "at"})
        here["measures"].insert_many([{"at": datetime.now(UTC), "n": n} for n in range(20)])
        for members in sets:
            _expire_each(members, 1)
        configuration = (
            f"{{id: there, source: '{uris[0]}', sink: '{uris[1]}', filter: {{tables: ['{_OLD}.*']}},"
            f" routes: [{{from: '{_OLD}.*', to: '{_NEW}.*'}}]}}"
        )
        _done(node, "changefeed", "create", "-", input=configuration)
        until(lambda: there["people"].count_documents({}) == 100, "the copy")
        ready = ("changefeed", "ready", "there", "--reverse-as", "back", "--block-writes")
        until(lambda: node.sluice(*ready).returncode == 0, "ready", lambda: node.sluice(*ready).stderr)

        here["people"].insert_one({"_id": "last", "email": "last@a"})
        told = _done(node, "changefeed", "finalize", "there", "--reverse-as", "back", "--block-writes", "--yes")
        assert "open: users may write at the target; changefeed back" in told
        assert there["people"].find_one({"_id": "last"}) is not None
        with pytest.raises(WriteError, match="writes blocked"):
            here["people"].insert_one({"_id": "too late"})
        assert (_expiry(at_old, _OLD), _expiry(at_new, _NEW)) == (_NEVER, _TTL)
        assert "is its way back" in node.sluice("changefeed", "resume", "there").stderr

        there["people"].update_one({"_id": 1}, {"$set": {"email": "2@b", "new": True}})
        there["people"].update_one({"_id": 2}, {"$set": {"email": "1@a"}})
        there["people"].delete_many({"_id": {"$gte": 90, "$type": "number"}})
        there["made there"].insert_many([{"_id": n} for n in range(10)])
        there["measures"].insert_many([{"at": datetime.now(UTC), "n": n} for n in range(20, 30)])
        left = there["sessions"].count_documents({})
        until(lambda: there["sessions"].count_documents({}) < left, "rows that expire at the new side")
        there["people"].create_index("new")
        there["people"].rename("persons")

        returned = _done(node, "changefeed", "finalize", "back", "--block-writes", "--yes")
        assert "users may write at its target again" in returned
        assert _all(at_old, _OLD) == _all(at_new, _NEW)
        due = datetime.now(UTC) - timedelta(
            seconds=_TTL
        )  # what is due expires at either side by itself, once it is restored at both
        assert len(kept := _kept(here["sessions"], due)) > 100
        assert kept == _kept(there["sessions"], due)
        assert {"_id_", "email_1", "new_1"} == here["persons"].index_information().keys()
        assert _expiry(at_old, _OLD) == _TTL
        here["persons"].insert_one({"_id": "again", "email": "again@a"})
        with pytest.raises(PyMongoError, match="writes blocked"):
            there["persons"].insert_one({"_id": "too late", "email": "x"})


def _expire_each(members: ReplicaSet, seconds: int) -> None:
    with members.client() as administrator:
        administrator.admin.command({"setParameter": 1, "ttlMonitorSleepSecs": seconds})


@pytest.mark.soak
def test_killed_at_any_moment_it_goes_on_and_up_to_its_mark_it_can_be_given_up(
    sets: tuple[ReplicaSet, ReplicaSet], etcd_endpoint: str, tmp_path: Path
) -> None:
    """The node that cuts over, and both primaries, again and again a little later; users write whenever they are allowed to, and rows expire."""
    old, new = sets
    source, sink = (members.uri_of("sluice", "sluice") for members in sets)
    with (
        MongoClient[Any](old.uri_of("app", "app")) as at_old,
        MongoClient[Any](new.uri_of("app", "app")) as at_new,
        Server(etcd_endpoint, tmp_path / "worker", name="n2", roles="processor") as worker,
        Server(etcd_endpoint, tmp_path / "log", cluster=worker.cluster) as node,
    ):
        at_old[_OLD]["rows"].create_index("at", expireAfterSeconds=_TTL)
        at_old[_OLD]["rows"].insert_many([{"_id": n} for n in range(100)])
        uris = ("--source", source, "--sink", sink)
        _done(node, "changefeed", "create", "--id", "there", *uris, "--tables", f"{_OLD}.*")
        until(lambda: at_new[_OLD]["rows"].count_documents({}) == 100, "the copy")
        _give_up(node, worker, at_old, at_new)
        ways = (_OLD, at_old, "there", "back"), (_OLD, at_new, "back", "there-again")
        for number, (db, users, feed, back) in enumerate(ways):
            written = _persistently(node, sets, f"{number}", users[db]["rows"], feed, back)
            for client in (at_old, at_new):
                until(partial(_has, client[db]["rows"], written), "all rows")
        assert _rows(at_old[_OLD]["rows"]) == _rows(at_new[_OLD]["rows"])
        assert [
            client[_OLD]["rows"].index_information()["at_1"]["expireAfterSeconds"] for client in (at_old, at_new)
        ] == [_TTL, _NEVER]


def _has(table: Collection[Any], ids: list[str]) -> bool:
    return table.count_documents({"_id": {"$in": ids}}) == len(ids)


def _give_up(node: Server, worker: Server, at_old: MongoClient[Any], at_new: MongoClient[Any]) -> None:
    """Nothing is applied without the worker, so the cut-over waits for its end."""
    worker.kill()
    cut_over = ("changefeed", "finalize", "there", "--reverse-as", "back", "--block-writes", "--yes")
    command = threading.Thread(target=node.sluice, args=cut_over)
    command.start()
    until(lambda: _expiry(at_old, _OLD, "rows") == _NEVER, "the old side's expiry is suspended")
    until(lambda: "target" in json.loads(_done(node, "changefeed", "query", "there", "-o", "json"))["configuration"])
    node.kill()
    command.join()
    node.start()
    node.until_ready()
    assert "give it up" in node.sluice("changefeed", "remove", "there", "--yes").stderr
    assert "is given up" in _done(node, "changefeed", "finalize", "there", "--give-up", "--yes")
    assert _expiry(at_old, _OLD, "rows") == _TTL
    at_new["another"]["table"].insert_one({"_id": "the new side is open"})
    at_old[_OLD]["rows"].insert_one({"_id": "after giving up"})
    worker.start()
    until(lambda: _has(at_new[_OLD]["rows"], ["after giving up"]), "it goes on")


def _persistently(
    node: Server, sets: tuple[ReplicaSet, ReplicaSet], of: str, users: Collection[Any], feed: str, back: str
) -> list[str]:
    """The rows that users wrote at the side that was cut over, while the command was killed again and again."""
    cut_over = ("changefeed", "finalize", feed, "--reverse-as", back, "--block-writes", "--yes")
    ready = ("changefeed", "ready", feed, "--reverse-as", back, "--block-writes")
    until(lambda: node.sluice(*ready).returncode == 0, "ready", lambda: node.sluice(*ready).stderr)
    stop, written = threading.Event(), list[str]()
    writer = threading.Thread(target=_write, args=(users, of, written, stop))
    writer.start()
    try:
        for tenths in range(1, 40, 3):
            victims = [node.kill, *([members.members[0].kill for members in sets] if tenths % 2 else [])]
            accident = threading.Timer(tenths / 10, lambda victims=victims: [kill() for kill in victims])
            accident.start()
            answer = node.sluice(*cut_over)
            accident.cancel()
            accident.join()
            if answer.returncode == 0:
                break
            for members in sets:
                if not members.members[0].running:
                    members.members[0].start()
            node.kill()
            node.start()
            node.until_ready()
        else:
            _done(node, *cut_over)
    finally:
        stop.set()
        writer.join()
    return written


def _write(table: Collection[Any], of: str, written: list[str], stop: threading.Event) -> None:
    number = 0
    while not stop.wait(0.02):
        number += 1
        with suppress(PyMongoError):
            table.insert_one({"_id": f"{of}-{number}"})
            written.append(f"{of}-{number}")


@pytest.mark.soak
def test_the_way_back_may_lead_to_an_older_server_whose_refusals_stop_their_tables_alone(
    own_mongodb: Callable[..., MongoDB], etcd_endpoint: str, tmp_path: Path
) -> None:
    """Nobody is blocked, since 4.4 cannot: what others wrote meanwhile is named. The node that cuts over is killed, and another one goes on."""
    old, new = own_mongodb("old", version="4.4.2"), own_mongodb("new", version="6.0.27")
    with (
        MongoClient[Any](old.uri) as at_old,
        MongoClient[Any](new.uri) as at_new,
        Server(etcd_endpoint, tmp_path / "log", roles="owner,processor") as node,
    ):
        here, there = at_old[_OLD], at_new[_OLD]
        here["people"].create_index("email", unique=True)
        here["people"].insert_many([{"_id": n, "email": f"{n}@a"} for n in range(100)])
        here["few"].insert_one({"_id": 1})
        uris = ("--source", old.uri, "--sink", new.uri)
        _done(node, "changefeed", "create", "--id", "there", *uris, "--tables", f"{_OLD}.*")
        until(lambda: there["people"].count_documents({}) == 100, "the copy")
        blocked = node.sluice("changefeed", "ready", "there", "--reverse-as", "back", "--block-writes")
        assert "4.4, which cannot block the writes of its users" in blocked.stderr
        ready = ("changefeed", "ready", "there", "--reverse-as", "back")
        until(lambda: node.sluice(*ready).returncode == 0, "ready", lambda: node.sluice(*ready).stderr)
        stop = threading.Event()
        stray = threading.Thread(target=_stray, args=(here["few"], stop))
        stray.start()
        cut_over = ("changefeed", "finalize", "there", "--reverse-as", "back", "--yes")
        try:
            while (answer := node.sluice(*cut_over)).returncode == 5:
                node.kill()
                node.start()
                node.until_ready()
        finally:
            stop.set()
            stray.join()
        assert (answer.returncode, f"source: {_OLD}.few:" in answer.stderr) == (1, True), answer
        assert "changefeed back brings it back" in answer.stdout

        there.create_collection("measures", timeseries={"timeField": "at"})
        there["measures"].insert_one({"at": datetime.now(UTC), "n": 1})
        there["people"].update_one({"_id": 1}, {"$set": {"email": "2@b"}})
        there["people"].delete_one({"_id": 5})
        there["made there"].insert_many([{"_id": n} for n in range(10)])

        query = ("changefeed", "query", "back")
        until(lambda: "measures (refused)" in _done(node, *query), "one table stopped", lambda: _done(node, *query))
        names = ("people", "made there")
        until(lambda: all(_rows(here[name]) == _rows(there[name]) for name in names), "equal, but for that table")
        refused = node.sluice("changefeed", "finalize", "back", "--yes")
        assert (refused.returncode, "measures" in refused.stderr) == (1, True), refused
        _done(node, "changefeed", "finalize", "back", "--leave-stopped", "--yes")


@pytest.mark.soak
def test_once_the_oplog_of_the_new_side_has_rolled_over_only_a_copy_leads_back(
    own_mongodb: Callable[..., MongoDB], forgetful: MongoDB, etcd_endpoint: str, tmp_path: Path
) -> None:
    """The way back was away for too long. The handbook says how to return then."""
    old, new = own_mongodb("old"), forgetful
    with (
        MongoClient[Any](old.uri) as at_old,
        MongoClient[Any](new.uri) as at_new,
        Server(etcd_endpoint, tmp_path / "log", roles="owner,processor") as node,
    ):
        here, there = at_old[_OLD]["rows"], at_new[_OLD]["rows"]
        here.insert_many([{"_id": n} for n in range(100)])
        uris = ("--source", old.uri, "--sink", new.uri)
        _done(node, "changefeed", "create", "--id", "there", *uris, "--tables", f"{_OLD}.*")
        until(lambda: there.count_documents({}) == 100, "the copy")
        ready = ("changefeed", "ready", "there", "--reverse-as", "back")
        until(lambda: node.sluice(*ready).returncode == 0, "ready", lambda: node.sluice(*ready).stderr)
        _done(node, "changefeed", "finalize", "there", "--reverse-as", "back", "--yes")
        node.kill()
        written = there.insert_one({"_id": "never brought back"}, session=(session := at_new.start_session()))
        assert written.acknowledged
        assert session.operation_time is not None
        forget(at_new, session.operation_time)
        node.start()
        node.until_ready()
        until(lambda: "oplog" in _done(node, "changefeed", "query", "back"), "the way back has failed")
        refused = node.sluice("changefeed", "finalize", "back", "--yes")
        assert refused.returncode == 1, refused
        assert "no longer in the source's oplog" in refused.stderr
        assert (
            "users write at its target" in node.sluice("changefeed", "finalize", "there", "--give-up", "--yes").stderr
        )

        for feed in ("back", "there"):
            _done(node, "changefeed", "remove", feed, "--yes")
        here.drop()
        uris = ("--source", new.uri, "--sink", old.uri)
        until(
            lambda: "there" not in _done(node, "changefeed", "list", "-o", "name"),
            "removed",
            lambda: _done(node, "changefeed", "list", "-o", "wide") + node.log[-6000:],
        )
        _done(node, "changefeed", "create", "--id", "anew", *uris, "--tables", f"{_OLD}.*")
        until(partial(_has, here, ["never brought back"]), "the copy back")
        assert _rows(here) == _rows(there)


def _stray(table: Collection[Any], stop: threading.Event) -> None:
    number = 1
    while not stop.wait(0.05):
        number += 1
        table.insert_one({"_id": number})


def _rows(table: Collection[Any]) -> list[Any]:
    return sorted(table.find(), key=str)


def _done(node: Server, *arguments: str, input: str | None = None) -> str:
    answer = node.sluice(*arguments, input=input)
    assert answer.returncode == 0, f"{answer.stderr}{answer.stdout}\n{node.log[-3000:]}"
    return answer.stdout


def _all(client: MongoClient[Any], db: str) -> dict[str, list[Any]]:
    """Without what expires."""
    names = [name for name in client[db].list_collection_names() if not name.startswith(("system.", "sessions"))]
    return {name: _rows(client[db][name]) for name in sorted(names)}


def _kept(table: Collection[Any], due: datetime) -> list[Any]:
    return [row for row in _rows(table) if row["at"] > due + timedelta(seconds=10)]


def _expiry(client: MongoClient[Any], db: str, table: str = "sessions") -> int:
    return int(client[db][table].index_information()["at_1"]["expireAfterSeconds"])
