"""The effect of a user's verbs on a changefeed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admin.desired import verbs
from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.config.tables.routes import Routes
from changefeed.config.written_values import RateLimit
from changefeed.errors import ConfigurationError, ConflictError, WrongState
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.requests import ChangefeedInfo, DesiredState, Reroute
from changefeed.records.status import ChangefeedStatus
from coordination.etcd.protocol import KeyValue
from coordination.layout import decode, encode, readable

_CONFIGURATION = Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b"})
_OTHER = Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b", "on_divergence": "fail"})
_INFO = ChangefeedInfo(configuration=_CONFIGURATION, created_at=datetime(2026, 11, 21, tzinfo=UTC))
_AT = Position(ClusterTime(100, 1))
_STREAM = CaptureChoice(capture=Capture.CHANGE_STREAM, reason="it was asked for")
_OPLOG = CaptureChoice(capture=Capture.OPLOG, reason="its oplog can be read")


def _status(state: State, *, version: int = 1, begun: bool = True) -> ChangefeedStatus:
    at = _AT if begun else None
    return ChangefeedStatus(lifecycle=Lifecycle(state=state), checkpoint=at, resolved=at, info_version=version, epoch=1)


def test_pause_and_resume_count_as_changes_once() -> None:
    paused = verbs.paused(_INFO, _status(State.NORMAL))
    assert (paused.desired, paused.version) == (DesiredState.PAUSED, 2)
    assert verbs.paused(paused, _status(State.NORMAL)) == paused
    resumed = verbs.resumed(paused, _status(State.STOPPED, version=2), None)
    assert (resumed.desired, resumed.version) == (DesiredState.RUNNING, 3)
    assert verbs.resumed(resumed, _status(State.NORMAL, version=3), None) == resumed


def test_resume_before_the_owner_obeyed_the_pause_still_counts() -> None:
    paused = verbs.paused(_INFO, _status(State.NORMAL))
    assert verbs.resumed(paused, _status(State.NORMAL), None).version == 3


@pytest.mark.parametrize("state", [State.FAILED, State.FINISHED])
def test_what_has_ended_is_not_paused(state: State) -> None:
    with pytest.raises(WrongState, match="nothing to pause"):
        verbs.paused(_INFO, _status(state))


def test_a_new_start_is_for_what_rests_and_is_forgotten_once_obeyed() -> None:
    with pytest.raises(WrongState, match="pause it first"):
        verbs.resumed(_INFO, _status(State.NORMAL), _AT)
    info = replace(_INFO, desired=DesiredState.PAUSED)
    restarted = verbs.resumed(info, _status(State.STOPPED), _AT)
    assert (restarted.resume_from, restarted.version) == (_AT, 2)
    assert verbs.paused(restarted, _status(State.STOPPED)).resume_from == _AT
    assert verbs.paused(restarted, _status(State.NORMAL, version=2, begun=False)).resume_from == _AT
    assert verbs.paused(restarted, _status(State.NORMAL, version=2)).resume_from is None


@pytest.mark.parametrize("change", [{"delay": "5m"}, {"filter": {"tables": ["shop.*"]}}])
def test_a_change_while_it_runs_does_not_begin_at_the_new_start_again(change: dict[str, Any]) -> None:
    paused = replace(_INFO, desired=DesiredState.PAUSED)
    restarted = verbs.resumed(paused, _status(State.STOPPED), _AT)
    wanted = Configuration.parse({**_CONFIGURATION.public(), **change})

    def changed(obeyed: int) -> ChangefeedInfo:
        status = _status(State.NORMAL, version=obeyed)
        return verbs.updated(restarted, status, wanted, restarted.version, _STREAM)

    for obeyed in (1, 2):
        assert (changed(obeyed).version, changed(obeyed).desired) == (3, DesiredState.RUNNING)
    assert changed(1).resume_from == _AT, "it is not obeyed yet"
    assert changed(2).resume_from is None


def test_a_pause_before_a_new_start_is_obeyed_does_not_undo_it() -> None:
    """The owner drops the unfinished copies of the old start first: going on there would count what is gone."""
    restarted = verbs.resumed(replace(_INFO, desired=DesiredState.PAUSED), _status(State.STOPPED), _AT)
    paused = verbs.paused(restarted, _status(State.STOPPED))
    assert verbs.resumed(paused, _status(State.STOPPED, version=3), None).resume_from == _AT


@pytest.mark.parametrize("sink", ["kafka://b:9092/p", "file:///p"])
def test_a_changefeed_that_writes_messages_has_no_new_start(sink: str) -> None:
    """Those in between would be missing, or there twice."""
    configuration = Configuration.parse({"id": "f", "source": "mongodb://a", "sink": sink})
    info = replace(_INFO, configuration=configuration, desired=DesiredState.PAUSED)
    with pytest.raises(WrongState, match="writes messages, and those between its position"):
        verbs.resumed(info, _status(State.STOPPED), _AT)
    assert verbs.resumed(info, _status(State.STOPPED), None).desired is DesiredState.RUNNING


def test_an_update_is_for_what_rests_and_for_the_version_that_was_seen() -> None:
    with pytest.raises(WrongState, match="pause it first"):
        verbs.updated(_INFO, _status(State.NORMAL), _OTHER, 1, _STREAM)
    with pytest.raises(WrongState, match="pause it first"):
        verbs.updated(replace(_INFO, version=2), _status(State.STOPPED), _OTHER, 2, _STREAM)
    with pytest.raises(ConflictError, match="is at version 1, expected 7"):
        verbs.updated(_INFO, _status(State.STOPPED), _OTHER, 7, _STREAM)
    with pytest.raises(ConfigurationError, match="does not rename"):
        verbs.updated(_INFO, _status(State.STOPPED), _OTHER.model_copy(update={"id": "g"}), 1, _STREAM)
    updated = verbs.updated(_INFO, _status(State.STOPPED), _OTHER, 0, _STREAM)
    assert (updated.configuration, updated.version, updated.desired) == (_OTHER, 2, DesiredState.PAUSED)
    assert verbs.updated(_INFO, _status(State.STOPPED), _CONFIGURATION, 1, _STREAM) == _INFO


def test_an_end_is_set_once_and_only_comes_nearer() -> None:
    now, later = ClusterTime(200, 0), ClusterTime(300, 0)
    ending = verbs.ending(_INFO, _status(State.NORMAL), now)
    assert (ending.configuration.target, ending.version) == (now, 2)
    assert verbs.ending(ending, _status(State.NORMAL), later) == ending
    far = replace(_INFO, configuration=_CONFIGURATION.model_copy(update={"target": later}))
    assert verbs.ending(far, _status(State.NORMAL), now).configuration.target == now
    left = verbs.ending(ending, _status(State.NORMAL), later, leave_stopped=True)
    assert (left.configuration.target, left.leaves_stopped, left.version) == (now, True, ending.version + 1)
    assert verbs.ending(left, _status(State.NORMAL), later) == left
    assert verbs.ending(_INFO, _status(State.FINISHED), now) == _INFO
    with pytest.raises(WrongState, match="resume it"):
        verbs.ending(replace(_INFO, desired=DesiredState.PAUSED), _status(State.STOPPED), now)


def test_what_finished_goes_on_only_with_a_later_end_or_none() -> None:
    def ends_at(target: ClusterTime) -> ChangefeedInfo:
        return replace(_INFO, configuration=_CONFIGURATION.model_copy(update={"target": target}))

    with pytest.raises(WrongState, match="has reached its target"):
        verbs.resumed(ends_at(_AT.ts), _status(State.FINISHED), None)
    for info in (_INFO, ends_at(_AT.ts.next())):
        assert verbs.resumed(info, _status(State.FINISHED), None).version == 2


def test_what_is_being_removed_takes_no_other_verb() -> None:
    removed = verbs.removed(_INFO, _status(State.NORMAL))
    assert (removed.desired, verbs.removed(removed, None)) == (DesiredState.REMOVED, removed)
    status = _status(State.NORMAL)
    others: list[Callable[[], object]] = [
        lambda: verbs.paused(removed, status),
        lambda: verbs.resumed(removed, status, None),
        lambda: verbs.updated(removed, status, _OTHER, 0, _STREAM),
        lambda: verbs.ending(removed, status, ClusterTime(1, 0)),
    ]
    for verb in others:
        with pytest.raises(WrongState, match="is being removed"):
            verb()


def test_what_was_decided_is_recorded_with_its_reason() -> None:
    created = verbs.created(_CONFIGURATION, _OPLOG, _INFO.created_at)
    assert (created.capture, created.capture_reason) == (Capture.OPLOG, "its oplog can be read")
    changed = verbs.updated(created, _status(State.STOPPED), _OTHER, 1, _STREAM, level=created)
    assert (changed.capture, changed.capture_reason, changed.version) == (Capture.CHANGE_STREAM, "it was asked for", 2)


def test_another_capture_is_taken_only_where_nothing_was_asked_for_since_its_positions_were_seen() -> None:
    stopped = _status(State.STOPPED, version=2)
    paused = replace(_INFO, desired=DesiredState.PAUSED, version=2)
    for level in (None, _INFO, replace(paused, version=1)):
        with pytest.raises(ConflictError, match="changed by another user meanwhile"):
            verbs.updated(paused, stopped, _OTHER, 0, _OPLOG, level=level)
    assert verbs.updated(paused, stopped, _OTHER, 0, _OPLOG, level=paused).capture is Capture.OPLOG
    with pytest.raises(WrongState, match="pause it first"):
        verbs.updated(replace(paused, version=3), stopped, _OTHER, 0, _OPLOG, level=replace(paused, version=3))


@pytest.mark.parametrize(
    ("capture", "own", "foreign"),
    [(Capture.OPLOG, "00000002", "82" * 20), (Capture.CHANGE_STREAM, "82" * 20, "00000002")],
)
def test_a_start_between_changes_of_one_time_is_one_that_its_capture_names(
    capture: Capture, own: str, foreign: str
) -> None:
    info, status = replace(_INFO, capture=capture), _status(State.STOPPED)
    for token in (own, ""):
        start = Position(_AT.ts, token)
        assert verbs.resumed(info, status, start).resume_from == start
    with pytest.raises(ConfigurationError, match=f"{capture} cannot read; write its time alone, 100.1"):
        verbs.resumed(info, status, Position(_AT.ts, foreign))


def test_an_update_says_what_becomes_of_names_and_knows_the_deployments() -> None:
    info = replace(_INFO, source_id="s", sink_id="t")
    ids = verbs.DeploymentIds("s2", "")
    updated = verbs.updated(info, _status(State.STOPPED), _OTHER, 0, _STREAM, reroute=Reroute.COPY, ids=ids)
    assert (updated.reroute, updated.source_id, updated.sink_id) == (Reroute.COPY, "s2", "t")
    unbegun = verbs.updated(info, _status(State.STOPPED, begun=False), _OTHER, 0, _STREAM, ids=ids)
    assert (unbegun.reroute, unbegun.source_id, unbegun.sink_id) == (None, "s2", "")
    again = verbs.updated(updated, _status(State.STOPPED, version=2), _OTHER, 0, _STREAM, reroute=Reroute.RENAME)
    assert (again.version, again.reroute) == (3, Reroute.RENAME), "the same configuration, another way to it"


def test_a_new_start_waits_until_changed_routes_are_carried_out() -> None:
    info = replace(_INFO, desired=DesiredState.PAUSED)
    elsewhere = replace(_status(State.STOPPED), routes=Routes.model_validate([{"from": "a.*", "to": "b.*"}]))
    for status in (elsewhere, replace(_status(State.STOPPED), tables=())):
        with pytest.raises(WrongState, match="carry out its update first"):
            verbs.resumed(info, status, _AT)
        assert verbs.resumed(info, status, None).desired is DesiredState.RUNNING


def test_limits_change_while_it_runs() -> None:
    limited = _CONFIGURATION.model_copy(update={"copy_limit": RateLimit(bytes=10**6)})
    for state in (State.NORMAL, State.WARNING):
        info = verbs.updated(_INFO, _status(state), limited, 1, _STREAM)
        assert (info.desired, info.version, info.configuration) == (DesiredState.RUNNING, 2, limited)


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.FINISHED])
def test_a_changed_limit_starts_nothing_that_rests(state: State) -> None:
    limited = _CONFIGURATION.model_copy(update={"copy_limit": RateLimit(bytes=10**6)})
    assert verbs.updated(_INFO, _status(state), limited, 1, _STREAM).desired is DesiredState.PAUSED


def test_what_starts_ahead_of_its_source_is_not_finished() -> None:
    """A local time that was written as UTC: nothing of it would be readable after that."""
    now, ahead = ClusterTime(100, 0), ClusterTime(32_500, 0)
    configured = replace(_INFO, configuration=Configuration.parse(_FIELDS | {"start": str(ahead)}))
    again = replace(_INFO, resume_from=Position(ahead))
    for info in (configured, again):
        with pytest.raises(WrongState, match=r"starts at 32500\.0 .* the source is at 100\.0 .* or remove it"):
            verbs.ending(info, None, now)
        assert verbs.ending(info, None, ClusterTime(40_000, 0)).configuration.target == ClusterTime(40_000, 0)
    at_once = replace(_INFO, resume_from=Position(now))
    assert verbs.ending(at_once, None, now).configuration.target == now


_FIELDS: dict[str, Any] = {"id": "f", "source": "mongodb://a", "sink": "mongodb://b"}
_TIMES = st.builds(ClusterTime, st.integers(1, 400), st.integers(0, 2))
_WRITTEN = st.fixed_dictionaries(
    {name: st.just(value) for name, value in _FIELDS.items()},
    optional={
        "start": st.sampled_from(["initial", "now"]) | _TIMES.map(str),
        "filter": st.sampled_from(
            [{"tables": ["shop.*", "!shop.x"]}, {"events": [{"tables": ["*.*"], "ignore": ["delete"]}]}]
        ),
        "routes": st.just([{"from": "shop.*", "to": "dr.*"}]),
        "target": _TIMES.map(str),
        "capture": st.sampled_from(["auto", "oplog"]),
        "copy_limit": st.just("20MB/s"),
    },
)
_STATES = st.none() | st.builds(
    _status,
    st.sampled_from([each for each in State if each is not State.REMOVED]),
    version=st.integers(1, 3),
    begun=st.booleans(),
)
_EDITS: Mapping[
    str, Callable[[ChangefeedInfo, ChangefeedStatus | None, Configuration, ClusterTime], ChangefeedInfo]
] = {
    "pause": lambda info, status, other, time: verbs.paused(info, status),
    "resume": lambda info, status, other, time: verbs.resumed(info, status, None),
    "resume at": lambda info, status, other, time: verbs.resumed(info, status, Position(time)),
    "update": lambda info, status, other, time: verbs.updated(info, status, other, 0, _OPLOG, level=info),
    "finalize": lambda info, status, other, time: verbs.ending(info, status, time, leave_stopped=True),
    "remove": lambda info, status, other, time: verbs.removed(info, status),
}


@settings(max_examples=500)
@given(
    written=_WRITTEN,
    choice=st.sampled_from([_STREAM, _OPLOG]),
    steps=st.lists(st.tuples(st.sampled_from(sorted(_EDITS)), _STATES, _WRITTEN, _TIMES), max_size=5),
)
def test_whatever_a_verb_returns_can_be_read_as_it_was_written(
    written: dict[str, Any],
    choice: CaptureChoice,
    steps: list[tuple[str, ChangefeedStatus | None, dict[str, Any], ClusterTime]],
) -> None:
    with suppress(ConfigurationError):
        info = verbs.created(
            Configuration.parse(written), choice, datetime(2026, 11, 21, tzinfo=UTC), verbs.DeploymentIds("s", "t")
        )
        assert decode(ChangefeedInfo, _stored(info)) == info
        for verb, status, other, time in steps:
            with suppress(ConfigurationError, WrongState, ConflictError):
                info = _EDITS[verb](info, status, Configuration.parse(other), time)
                assert readable("k", info) == encode(info)
                assert decode(ChangefeedInfo, _stored(info)) == info


def _stored(info: ChangefeedInfo) -> KeyValue:
    return KeyValue(key="k", value=encode(info), create_rev=1, mod_rev=1)
