"""`kill -9` at each moment of a DDL: {7 kinds of DDL} x {victim} x {moment}, 140 cases, on real nodes.

`make test` kills an owner once, with a DDL of each kind, all moments among them. `make failover` runs all cases.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from devstack.mongodb.server import Client
from tests.e2e.failover.accident import Accident, Moment, Victim
from tests.e2e.failover.ddl_kinds import KINDS
from tests.e2e.failover.standing_cluster import PROCESSORS, StandingCluster

pytestmark = pytest.mark.costly("an owner and two processors with Spark, of which the owner dies")

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


def test_a_ddl_is_there_once_and_replication_goes_on_when_its_owner_dies(
    standing: StandingCluster, subtests: pytest.Subtests
) -> None:
    _happens(standing, subtests, Victim.OWNER, dict(zip(KINDS, itertools.cycle(Moment), strict=False)))


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
