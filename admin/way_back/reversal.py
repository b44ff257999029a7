"""`Reversal`: a cut-over with a way back. It can be called again at any time, after a crash too: each step is found in what was recorded before it.

    recorded for the changefeed (`WayBack`)      then
    the way back's name                          both sides' users write no more, if that was asked for
    the source's expiries                        they are suspended; the time up to which the source is replicated is taken and recorded
    (the changefeed has finished)                the target's time is taken: nothing of the changefeed writes any more
    that time                                    a mark is written at the target, and its time read
    the mark's time                              the expiries are restored at the target; the oplogs of both sides are read for writes of others
    what others wrote                            the changefeed back is created, and begins at the mark, without a copy
    (it runs)                                    the target's users may write again; the source's only once the way back has finished
    open                                         nothing, and once the way back is finalized or gone, a call is refused: users may have returned

Up to the mark it can be given up: the source's expiries are restored, both sides' users may write, and the changefeed goes on. One of the sides may be
gone for good: what would be left there, should it come back, is told. From the mark
on only the way back can be: the target's users may write, for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from admin.access import Caller
from admin.cluster_reader import Changes, ClusterReader, tables_of
from admin.desired import verbs
from admin.desired.desired_store import DesiredStore
from admin.desired.verbs import DeploymentIds
from admin.preflight.validation import Validator
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.way_back.reversed import notes, reversed_configuration, strangers, unlike
from admin.way_back.sides import LIFTED_BY, CutOverSide, Restored, left_at
from changefeed.config.configuration import Configuration
from changefeed.errors import (
    ConfigurationError,
    ConflictError,
    NotFoundError,
    SluiceError,
    SourceUnavailable,
    WrongState,
)
from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState, WayBack
from changefeed.records.status import ChangefeedStatus
from credentials.redaction import redacted


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedReversal:
    id: ChangefeedId
    back: ChangefeedId
    blocks: bool = False


def sides_of(configuration: Configuration) -> tuple[CutOverSide, CutOverSide]:
    return CutOverSide("source", configuration.source), CutOverSide("target", configuration.sink)


class Reversal:
    def __init__(
        self,
        reader: ClusterReader,
        store: DesiredStore,
        validator: Validator,
        sides: Callable[[Configuration], tuple[CutOverSide, CutOverSide]] = sides_of,
    ) -> None:
        self._reader = reader
        self._store = store
        self._validator = validator
        self._sides = sides

    def obstacles(self, asked: AskedReversal) -> list[str]:
        """All that would keep the way back from being made, but for what keeps the changefeed from being finished. Changes nothing."""
        info, _ = self._store.read(asked.id)
        if info.way_back is not None:
            return [] if info.way_back.id == asked.back else [str(_another(asked.id, info.way_back))]
        try:
            self._store.check_free(asked.back)
            back = reversed_configuration(info.configuration, asked.back)
        except ConfigurationError as error:
            return list(error.problems)
        except ConflictError as error:
            return [str(error)]
        tables = tables_of(self._reader.changefeed(asked.id)).living
        problems = list(unlike(info.configuration, back, tables))
        for side in self._sides(info.configuration):
            try:
                problems += side.obstacles(blocks=asked.blocks)
            except SluiceError as error:
                problems.append(redacted(str(error)))
        if not problems:
            found = self._validator.findings(back, reverses=asked.id)
            names = [table.name for table in tables]
            problems = [f"back: {problem}" for problem in found.problems]
            problems += strangers(info.configuration, names, [table.name for table in found.tables])
        return problems

    def notes(self, asked: AskedReversal) -> list[str]:
        info, _ = self._store.read(asked.id)
        return list(notes(info.configuration, tables_of(self._reader.changefeed(asked.id)).living))

    def begin(self, asked: AskedReversal, caller: Caller) -> None:
        """Before the time is taken up to which the source is replicated."""
        store = self._store.by(caller)
        info, status = self._store.read(asked.id)
        if info.way_back is None:
            if problems := self.obstacles(asked):
                raise ConfigurationError(problems)
            _check_no_letters(asked.id, status)
            if info.configuration.target is not None or (
                status is not None and status.lifecycle.state is State.FINISHED
            ):
                raise WrongState(
                    f"changefeed {asked.id!r} has an end already, which others may have written after; name the way back with the first finalize"
                )
            store.change(asked.id, lambda info, _: _begun(info, asked), "cut over with a way back")
        self._check_not_over(asked)
        self._end(asked, info.configuration, store)

    def _end(self, asked: AskedReversal, configuration: Configuration, store: DesiredStore) -> None:
        """A call that was held up may do this after another one has given up, or is through: then it undoes it."""
        way = self._way(asked)
        source, target = self._sides(configuration)

        def ending(info: ChangefeedInfo, status: ChangefeedStatus | None) -> ChangefeedInfo:
            _check_is(asked, info)
            return verbs.ending(info, status, end)

        try:
            if way.expiries is None:
                for side in (source, target) if way.blocks else ():
                    side.block(blocked=True)
                way = self._record(asked, expiries=source.expiries(configuration.filter.wants_table))
            if configuration.target is None:
                source.suspend(way.expiries or ())
                end = source.newest().next()
                store.change(asked.id, ending, "finalize")
        except WrongState as refused:
            if self._is_given_up(asked) and (left := self._undo(asked.id, configuration, way)):
                raise WrongState(f"{refused}; {'; '.join(left)}") from refused
            raise
        if way.blocks and self._way(asked).open:
            target.block(blocked=False)

    def _check_not_over(self, asked: AskedReversal) -> None:
        """Once users return, or have returned, a way back that is made again would repeat old changes at the source, and the target is not theirs."""
        way = self._way(asked)
        if not way.open:
            return
        try:
            back, _ = self._store.read(asked.back)
            ends = back.way_back is not None or back.configuration.target is not None
            over = ends or back.desired is DesiredState.REMOVED
        except NotFoundError:
            over = True
        if over:
            raise WrongState(
                f"changefeed {asked.id!r} has been cut over, and its way back {asked.back!r} is finalized, removed or given up, so there is nothing left to "
                f"do; for another migration remove {asked.id!r} (`sluice changefeed remove {asked.id}`) and create it anew"
            )

    def _is_given_up(self, asked: AskedReversal) -> bool:
        """Then nothing of it may stay."""
        info, _ = self._store.read(asked.id)
        return info.way_back is None

    def _undo(self, id: ChangefeedId, configuration: Configuration, way: WayBack) -> list[str]:
        """Returns what is left for the user: what is gone, and what stays at a side that does not answer, which may never do again. If the source
        refuses something, it can be undone another time, and the blocks stay until then.
        """
        left: list[str] = []
        silent = False
        sides = zip(("source", "target"), self._sides(configuration), (way.expiries or (), ()), strict=True)
        for name, side, expiries in sides:
            try:
                restored = side.restore(expiries) if expiries else Restored()
                if restored.failed:
                    raise WrongState(
                        f"changefeed {id!r}: expiries of the source are not restored yet, so its cut-over is not given up: {'; '.join(restored.failed)}; "
                        "mend that, and give it up again"
                    )
                left += restored.gone
                if way.blocks:
                    side.block(blocked=False)
            except SourceUnavailable as error:
                if silent:
                    raise
                silent = True
                left += left_at(name, error, expiries, blocks=way.blocks)
        return left

    def complete(self, asked: AskedReversal, caller: Caller, changes: Changes) -> Iterator[pb.FinalizeProgress]:
        """Once the changefeed has finished. Ends with a message that has `done` set, or without one if the call ends earlier."""
        info, status = self._store.read(asked.id)
        _, target = self._sides(info.configuration)
        way = self._marked(asked, status, target, changes)
        if way is None:
            return
        self._check_not_over(asked)
        mark_ts = way.mark_ts
        assert mark_ts is not None
        way, restored = self._compared(asked, info.configuration, way)
        if not self._exists(asked):
            if not target.reaches(mark_ts):
                raise WrongState(
                    f"changefeed {asked.id!r}: the target's oplog does not reach back to the cut-over's mark ({mark_ts}), so there is no way back "
                    f"from it any more; to stay at the target: `sluice changefeed finalize {asked.id} --give-up`"
                )
            back = reversed_configuration(info.configuration, asked.back)
            self._create(asked, back.model_copy(update={"start": mark_ts.next()}), caller, blocks=way.blocks)
        if not self._runs(asked, changes):
            return
        way = self._open(asked, target, way, restored)
        yield pb.FinalizeProgress(
            done=True,
            reverse=asked.back,
            starts=str(mark_ts),
            target=str(info.configuration.target),
            restored=len(way.expiries or ()) - len(restored.problems),
            problems=restored.problems,
            foreign=way.foreign,
            block_lifted_by=LIFTED_BY if way.blocks else "",
        )

    def _compared(
        self, asked: AskedReversal, configuration: Configuration, way: WayBack, *, without_source: bool = False
    ) -> tuple[WayBack, Restored]:
        """With what others wrote, and how the target's expiries were restored. `without_source`: it may be gone for good."""
        assert way.mark_ts is not None
        assert way.stopped_ts is not None
        assert configuration.target is not None
        source, target = self._sides(configuration)
        restored = Restored() if way.open else target.restore(way.expiries or (), configuration.routes.target)
        if way.foreign is None:
            wants = configuration.filter.wants_table
            wants_back = reversed_configuration(configuration, asked.back).filter.wants_table
            at_source: tuple[str, ...]
            try:
                at_source = source.foreign(wants, configuration.target.previous(), source.newest())
            except SluiceError as error:
                if not without_source:
                    raise
                at_source = (
                    f"source: what was written there since {configuration.target} is not known: {redacted(str(error))}",
                )
            foreign = *at_source, *target.foreign(wants_back, way.stopped_ts, way.mark_ts)
            way = self._record(asked, foreign=foreign)
        return way, restored

    def _open(self, asked: AskedReversal, target: CutOverSide, way: WayBack, restored: Restored) -> WayBack:
        if way.open:
            return way
        if way.blocks:
            target.block(blocked=False)
        return way if restored.failed else self._record(asked, open=True)  # the next call tries again what failed

    def _marked(
        self, asked: AskedReversal, status: ChangefeedStatus | None, target: CutOverSide, changes: Changes
    ) -> WayBack | None:
        """With the times of the stop and of the mark. None: the call ends earlier."""
        way = self._way(asked)
        if way.mark_ts is not None:
            return way
        _check_no_letters(asked.id, status)
        if way.stopped_ts is None:
            if not self._stands_still(asked.id, changes):
                return None
            self._record(asked, stopped_ts=target.newest())
        return self._record(asked, mark_ts=target.mark(asked.id, asked.back))

    def give_up(self, id: ChangefeedId, caller: Caller) -> pb.FinalizeProgress:
        info, _ = self._store.read(id)
        way = info.way_back
        verbs.check_gives_up(info)
        assert way is not None
        if way.mark_ts is not None:
            return self._stay(AskedReversal(id=id, back=way.id), info.configuration, way, caller)
        left = self._undo(id, info.configuration, way)
        self._store.by(caller).change(id, verbs.gave_up, "give up cut-over")
        return pb.FinalizeProgress(done=True, given_up=True, problems=left)

    def _stay(
        self, asked: AskedReversal, configuration: Configuration, way: WayBack, caller: Caller
    ) -> pb.FinalizeProgress:
        """At the target, without a way back."""
        way, restored = self._compared(asked, configuration, way, without_source=True)
        self._store.by(caller).record(asked.id, "give up way back", asked.back, after="users may write at the target")
        self._open(asked, self._sides(configuration)[1], way, restored)
        return pb.FinalizeProgress(
            done=True, given_up=True, target=str(configuration.target), problems=restored.problems, foreign=way.foreign
        )

    def _way(self, asked: AskedReversal) -> WayBack:
        info, _ = self._store.read(asked.id)
        return _check_is(asked, info)

    def _record(self, asked: AskedReversal, **fields: Any) -> WayBack:
        """Nothing that another call has recorded meanwhile is replaced."""

        def recorded(info: ChangefeedInfo, _: object) -> ChangefeedInfo:
            way = _check_is(asked, info)
            new = {name: value for name, value in fields.items() if getattr(way, name) in (None, False)}
            return replace(info, way_back=replace(way, **new))

        self._store.change(asked.id, recorded, "")
        return self._way(asked)

    def _stands_still(self, id: ChangefeedId, changes: Changes) -> bool:
        while changes.wait():
            status = self._reader.changefeed(id).status
            if status is not None and status.still:
                return True
        return False

    def _exists(self, asked: AskedReversal) -> bool:
        try:
            info, _ = self._store.read(asked.back)
        except NotFoundError:
            return False
        if info.reverses != asked.id:
            raise ConflictError(
                f"changefeed {asked.back!r} was created by somebody else meanwhile; remove it, then run the command again"
            )
        return True

    def _create(self, asked: AskedReversal, back: Configuration, caller: Caller, *, blocks: bool) -> None:
        found = self._validator.findings(back, reverses=asked.id)
        choice, ids = found.accepted(), DeploymentIds(found.source_id, found.sink_id)
        info = verbs.created(back, choice, datetime.now(UTC), ids)
        self._store.by(caller).create(replace(info, reverses=asked.id, lifts_block=blocks))

    def _runs(self, asked: AskedReversal, changes: Changes) -> bool:
        back = asked.back
        while changes.wait():
            try:
                status = self._reader.changefeed(back).status
            except NotFoundError:
                continue
            if status is None:
                continue
            if status.checkpoint is not None and status.lifecycle.running:
                return True
            if status.lifecycle.resting:
                why = status.lifecycle.error.message if status.lifecycle.error else "it does not run"
                raise WrongState(
                    f"changefeed {back!r} is {status.lifecycle.state}: {why}; mend that, resume it, and run the command again; if it cannot be "
                    f"mended, there is no way back: stay at the target by `sluice changefeed finalize {asked.id} --give-up`"
                )
        return False


def _check_is(asked: AskedReversal, info: ChangefeedInfo) -> WayBack:
    """That this cut-over is the one under way."""
    way = info.way_back
    if way is None or way.id != asked.back:
        raise _another(asked.id, way)
    return way


def check_plain(info: ChangefeedInfo) -> None:
    """Whether it may be finalized without a way back."""
    if info.way_back is not None:
        raise _another(ChangefeedId(info.configuration.id), info.way_back)


def _check_no_letters(id: ChangefeedId, status: ChangefeedStatus | None) -> None:
    if status is not None and status.letters.count:
        raise WrongState(
            f"changefeed {id!r} has rejected rows ({status.letters.count:,}), which the target lacks, so they cannot come back; see "
            f"`sluice table rejected {id}`. A cut-over that has begun is given up by --give-up"
        )


def _begun(info: ChangefeedInfo, asked: AskedReversal) -> ChangefeedInfo:
    if info.way_back is not None:
        raise _another(asked.id, info.way_back)
    return replace(info, way_back=WayBack(id=asked.back, blocks=asked.blocks))


def _another(id: ChangefeedId, way: WayBack | None) -> WrongState:
    if way is None:
        return WrongState(
            f"the cut-over of changefeed {id!r} was given up meanwhile; run the command again to begin a new one"
        )
    return WrongState(
        f"changefeed {id!r} is being cut over with the way back {way.id!r}; run `sluice changefeed finalize {id} --reverse-as {way.id}` again, or give "
        "it up (--give-up)"
    )
