"""Faults of a real replica set of three members."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect, ServerSelectionTimeoutError, WTimeoutError

from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import TESTING, Client, MongoDB
from devstack.process import wait_until

pytestmark = pytest.mark.soak  # every test that uses it would see its faults, too

_SOON_SECONDS = 30.0
_NUMBERS = itertools.count()
_MAJORITY = WriteConcern("majority")


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    directory = tmp_path_factory.mktemp("rs")
    with ReplicaSet("rs", directory, directory, linked=True, election_timeout_ms=2_000, parameters=TESTING) as started:
        yield started


@pytest.fixture
def client(members: ReplicaSet) -> Iterator[Client]:
    """A client of the set, after the set has recovered from the previous test."""
    members.reconnect()
    members.wait_until_whole()
    with members.client() as opened:
        yield opened


def _rows(client: Client, concern: WriteConcern = _MAJORITY) -> Collection[dict[str, object]]:
    return client["shop"].get_collection("rows", write_concern=concern)


def _write(client: Client, concern: WriteConcern = _MAJORITY) -> int:
    """Inserts a row with a new number, and returns the number."""
    number = next(_NUMBERS)
    _rows(client, concern).insert_one({"_id": number})
    return number


def _has(client: Client, number: int) -> bool:
    return _rows(client).find_one({"_id": number}) is not None


def _direct(members: ReplicaSet, member: MongoDB) -> Client:
    """A direct connection to the member, by the address that clients use."""
    uri = f"mongodb://{members.address_of(member)}/?directConnection=true"
    return MongoClient(uri, serverSelectionTimeoutMS=500, connectTimeoutMS=500)


def test_a_primary_that_steps_down_is_followed_by_another(members: ReplicaSet, client: Client) -> None:
    old = members.primary()
    members.step_down(1)
    assert members.wait_for_primary() is not old
    assert _has(client, _write(client))


def test_a_primary_that_is_killed_is_followed_by_another_and_comes_back(members: ReplicaSet, client: Client) -> None:
    old = members.primary()
    old.kill()
    assert members.wait_for_primary() is not old
    number = _write(client)
    old.start()
    members.wait_until_whole()
    with old.client() as direct:
        assert wait_until(lambda: _has(direct, number), _SOON_SECONDS)


def test_a_primary_that_freezes_is_followed_by_another_and_stands_down_when_it_wakes(
    members: ReplicaSet, client: Client
) -> None:
    old = members.primary()
    old.pause()
    new = members.wait_for_primary()
    old.resume()
    members.wait_until_whole()
    assert new is members.primary()
    assert new is not old


def test_all_members_killed_come_back_with_what_a_majority_had(members: ReplicaSet, client: Client) -> None:
    number = _write(client)
    for member in members.members:
        member.kill()
    for member in members.members:
        member.start()
    members.wait_until_whole()
    assert _has(client, number)


@pytest.mark.soak
@pytest.mark.usefixtures("client")
def test_a_primary_that_is_cut_off_is_reached_by_nobody_and_is_one_no_longer(members: ReplicaSet) -> None:
    old = members.primary()
    members.cut_off(old)
    with _direct(members, old) as stranger, pytest.raises(ServerSelectionTimeoutError):
        stranger.admin.command("ping")
    members.wait_for_primary(beside=old)
    with members.client(connectTimeoutMS=1_000) as other:
        assert _has(other, _write(other))
    members.reconnect()
    members.wait_until_whole()
    assert members.primary() is not old


def test_clients_may_stay_on_the_side_of_a_member_that_lost_the_others(members: ReplicaSet, client: Client) -> None:
    old = members.primary()
    members.cut_off(old, from_clients=False)
    with _direct(members, old) as stranger:
        with pytest.raises((WTimeoutError, AutoReconnect)):
            _write(stranger, WriteConcern("majority", wtimeout=500))
        members.wait_for_primary(beside=old)
        assert wait_until(lambda: not stranger.admin.command("hello")["isWritablePrimary"], _SOON_SECONDS)
    members.reconnect()


@pytest.mark.parametrize("freeze", [False, True])
def test_what_only_the_old_primary_had_is_rolled_back(members: ReplicaSet, client: Client, freeze: bool) -> None:
    kept, lost = _write(client), []
    members.roll_back(lambda: lost.append(_write(client, WriteConcern(1))), freeze=freeze)
    assert [_has(client, number) for number in (kept, *lost)] == [True, False]


def test_secondaries_are_read_from(members: ReplicaSet, client: Client) -> None:
    number = _write(client, WriteConcern(3))
    read = client["shop"].get_collection("rows", read_preference=ReadPreference.SECONDARY)
    cursor = read.find({"_id": number})
    assert next(cursor) == {"_id": number}
    assert cursor.address is not None
    assert f"127.0.0.1:{cursor.address[1]}" in {members.address_of(member) for member in members.secondaries()}
