from __future__ import annotations

import pytest

from admin.preflight.looked import Looked, SourceFindings
from admin.preflight.sink_checks import sync_points
from admin.preflight.sink_probe import SinkFindings
from changefeed.capture import Capture
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration


def obstacles(
    capture: Capture, source: SourceFindings, sink: SinkFindings, *, wanted: dict[str, str] | None = None
) -> list[str]:
    fields = {"id": "f", "source": "mongodb://s", "sink": "mongodb://t", "sync_points": wanted}
    choice = CaptureChoice(capture=capture, reason="")
    looked = Looked(configuration=Configuration.parse(fields), source=source, sink=sink, choice=choice)
    return list(sync_points(looked))


SHARDED, SET = SourceFindings(version=(6, 0), sharded=True), SourceFindings(version=(6, 0))
TARGET = SinkFindings(version=(6, 0))


@pytest.mark.parametrize(
    ("capture", "source"),
    [
        (Capture.OPLOG, SET),
        (Capture.CHANGE_STREAM, SET),
        (Capture.SHARD_OPLOGS, SHARDED),
        (Capture.SHARD_OPLOGS, SourceFindings(version=(5, 0), sharded=True)),
    ],
)
def test_replica_sets_and_clusters_by_their_config_servers_can_be_read_as_of_then(
    capture: Capture, source: SourceFindings
) -> None:
    assert obstacles(capture, source, TARGET, wanted={}) == []


@pytest.mark.parametrize(
    ("capture", "source", "sink", "said"),
    [
        (Capture.CHANGE_STREAM, SHARDED, TARGET, "the source names routers"),
        (Capture.OPLOG, SET, SinkFindings(version=(6, 0), sharded=True), "the sink is a sharded cluster"),
        (Capture.OPLOG, SourceFindings(version=(4, 4)), TARGET, "the source is MongoDB 4.4"),
        (Capture.OPLOG, SET, SinkFindings(version=(4, 4)), "the sink is MongoDB 4.4"),
    ],
)
def test_others_are_refused_with_the_reason(
    capture: Capture, source: SourceFindings, sink: SinkFindings, said: str
) -> None:
    [problem] = obstacles(capture, source, sink, wanted={})
    assert said in problem
    assert obstacles(capture, source, sink) == []
