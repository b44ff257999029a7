"""`kill -9` at each moment of a DDL: {7 kinds of DDL} x {victim} x {moment}, 140 cases, on real nodes.

`make test` runs a spread of 21 that contains each kind, each moment, and each victim but another processor. `make failover` runs all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from devstack.mongodb.server import Client
from tests.e2e.failover.accident import Accident, Moment, Victim
from tests.e2e.failover.ddl_kinds import KINDS
from tests.e2e.failover.standing_cluster import PROCESSORS, StandingCluster

_MOMENTS = list(Moment)
_TURNS = itertools.cycle(PROCESSORS)
"""The processor that dies next, or holds the tables when only the owner dies."""


@pytest.fixture(scope="module")
def standing(
    etcd_endpoint: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StandingCluster]:
    directory = tmp_path_factory.mktemp("failover")
    cluster = StandingCluster(etcd_endpoint, source_uri, target_uri, source_client, target_client, directory)
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    "victim",
    [
        Victim.OWNER,
        pytest.param(Victim.HOME, marks=pytest.mark.soak),
        pytest.param(Victim.OWNER_AND_HOME, marks=pytest.mark.soak),
    ],
)
def test_a_ddl_is_there_once_and_replication_goes_on_whoever_dies(
    standing: StandingCluster, subtests: pytest.Subtests, victim: Victim
) -> None:
    shift = list(Victim).index(victim)
    moments = {name: _MOMENTS[(index + shift) % len(_MOMENTS)] for index, name in enumerate(KINDS)}
    _happens(standing, subtests, victim, moments)


@pytest.mark.failover
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("victim", Victim)
def test_a_ddl_is_there_once_and_replication_goes_on_whoever_dies_whenever(
    standing: StandingCluster, subtests: pytest.Subtests, victim: Victim, moment: Moment
) -> None:
    _happens(standing, subtests, victim, dict.fromkeys(KINDS, moment))


def _happens(cluster: StandingCluster, subtests: pytest.Subtests, victim: Victim, moments: dict[str, Moment]) -> None:
    cluster.stand_ready()
    accident = Accident(cluster, victim, moments, home=next(_TURNS))
    accident.begin()
    try:
        accident.happen()
        for case in accident.cases:
            with subtests.test(f"{case.name}; {victim} killed; {case.moment}"):
                assert accident.faults_of(case) == []
    finally:
        cluster.holds.release_all()
        cluster.start_again()
        accident.end()
