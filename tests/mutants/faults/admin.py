"""Faults of the room `admin`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_ROOM = ("tests/unit/admin/services", "tests/unit/admin/test_access.py")
_STORE = ("tests/unit/admin/desired",)
_WAY_BACK = ("tests/unit/admin/way_back",)

ADMIN = (
    Fault(
        "a limit that is changed restarts a changefeed at the start that a user once named",
        "        return replace(_changed(info, status, desired=DesiredState.RUNNING), configuration=configuration)\n",
        "        return replace(info, configuration=configuration, version=info.version + 1)\n",
    ),
    Fault(
        "a call may be made by a viewer",
        "        caller = guard.caller(_shown(context))\n        caller.demand(access)\n",
        "        caller = guard.caller(_shown(context))\n",
        tests=_ROOM,
    ),
    Fault(
        "a call of another door may be made by a viewer",
        "        context.caller.demand(access)\n        yield context",
        "        yield context",
        tests=_ROOM,
    ),
    Fault(
        "a change is written without its line of the history",
        "(unless,), (*ops, *line.ops(self._etcd, self._layout, id)))",
        "(unless,), tuple(ops))",
        tests=_STORE,
    ),
    Fault(
        "a cut-over may be made by a viewer",
        "    @admits(Access.OPERATOR)\n    def FinalizeChangefeed(",
        "    @admits(Access.VIEWER)\n    def FinalizeChangefeed(",
        tests=_ROOM,
    ),
    Fault(
        "a table may be copied anew by a viewer",
        "    @admits(Access.OPERATOR)\n    def RecopyTables(",
        "    @admits(Access.VIEWER)\n    def RecopyTables(",
        tests=_ROOM,
    ),
    Fault(
        "errors to callers are not redacted",
        "problems = _fitting(tuple(printable(redacted(each)) for each in said))",
        "problems = _fitting(tuple(printable(each) for each in said))",
        tests=_ROOM,
    ),
    Fault(
        "an unknown token is a viewer's",
        '        if not found:\n            raise NotAuthenticated("this server does not know',
        '        if not found and not secret:\n            raise NotAuthenticated("this server does not know',
        tests=_ROOM,
    ),
    Fault(
        "a viewer's token may do everything",
        "if needed is Access.OPERATOR and self.access is not Access.OPERATOR:",
        "if needed is Access.OPERATOR and self.access not in tuple(Access):",
        tests=_ROOM,
    ),
    Fault(
        "a damaged token file locks everybody out",
        "                except (OSError, SluiceError) as error:\n                    if found != self._tried:\n",
        "                except (OSError, SluiceError) as error:\n                    self._value = ()\n"
        "                    if found != self._tried:\n",
        tests=_ROOM,
    ),
    Fault(
        "a token is shown in logs",
        "        keep_secret(*(token.secret for token in tokens))\n",
        "",
        tests=_ROOM,
    ),
    Fault(
        "a user's change overwrites another one",
        "unchanged = ModRevIs(found.key, found.mod_rev)",
        "unchanged = CreateRevIs(found.key, found.create_rev)",
        tests=_STORE,
    ),
    Fault(
        "a request reaches a later changefeed of the same name",
        "self._written(id, CreateRevIs(found.key, found.create_rev), puts, line)",
        "self._written(id, CreateRevIs(f'{found.key}-none', 0), puts, line)",
        tests=_STORE,
    ),
    Fault(
        "two drains at the same time leave no node",
        "ModRevIs(kv.key, kv.mod_rev) for kv in (found, *([taker] if taker is not None and not force else []))",
        "ModRevIs(kv.key, kv.mod_rev) for kv in (found,)",
        tests=_STORE,
    ),
    Fault(
        "a drained node loses its lease",
        "put = _put(key, replace(record, draining=draining), found.lease)",
        "put = _put(key, replace(record, draining=draining))",
        tests=_STORE,
    ),
    Fault(
        "a request to resign outlives the owner that it is for",
        "put = _put(self._layout.resign, ResignRequest(epoch=owner.epoch), leader.lease)",
        "put = _put(self._layout.resign, ResignRequest(epoch=owner.epoch))",
        tests=_STORE,
    ),
    Fault(
        "a changefeed that a user removed is created again by itself",
        "if unless_removed and (at := self.removed_at(id)) is not None:",
        "if not unless_removed and (at := self.removed_at(id)) is not None:",
        tests=_STORE,
    ),
    Fault(
        "a running changefeed is updated as if it were paused",
        "if status is None or not status.lifecycle.resting or not _obeyed(info, status):",
        "if status is None:",
        tests=_STORE,
    ),
    Fault(
        "a sink of messages starts anew in the past",
        "if start is not None and info.configuration.sink_traits.keeps_messages:",
        "if start is None and info.configuration.sink_traits.keeps_messages:",
        tests=_STORE,
    ),
    Fault(
        "a cut-over is ready though rows are refused",
        "    if facts.rejected:\n",
        "    if facts.rejected > 1:\n",
    ),
    Fault(
        "a cut-over is ready though tables are behind",
        "    if facts.behind:\n        yield",
        "    if facts.behind and leave_stopped:\n        yield",
    ),
    Fault(
        "a node that is not ready says that it is",
        "            if reason := not_ready():\n",
        "            if (reason := not_ready()) and not reason:\n",
        tests=("tests/unit/admin/test_http_server.py",),
    ),
    Fault(
        "expiry is restored at the target before the mark of the way back",
        "        return self._record(asked, mark_ts=",
        "        target.restore(way.expiries or ())\n        return self._record(asked, mark_ts=",
        tests=_WAY_BACK,
    ),
    Fault(
        "the way back starts before the last write of the changefeed that it reverses",
        "            if not self._stands_still(asked.id, changes):\n                return None\n            self._record(",
        "            self._record(",
        tests=_WAY_BACK,
    ),
    Fault(
        "a cut-over leaves expiries suspended that were deferred before an update",
        "    if instead_of_documents(configuration):\n        return []\n    wanted",
        '    if instead_of_documents(configuration) or configuration.ddl.ttl == "copied":\n        return []\n    wanted',
        tests=_ROOM,
    ),
    Fault(
        "a cut-over leaves out what a majority of the source has only later",
        "        return of(client)\n",
        "        return majority_time(client)\n",
        tests=("tests/component/admin/way_back",),
    ),
    Fault(
        "expiry is suspended after the last time that is replicated",
        "                source.suspend(way.expiries or ())\n                end = source.newest().next()\n",
        "                end = source.newest().next()\n                source.suspend(way.expiries or ())\n",
        tests=_WAY_BACK,
    ),
    Fault(
        "a cut-over whose table with an expiry was dropped never ends",
        "return way if restored.failed else",
        "return way if restored.problems else",
        tests=_WAY_BACK,
    ),
    Fault(
        "a way back by which users have returned is made again from its old mark",
        "        except NotFoundError:\n            over = True\n",
        "        except NotFoundError:\n            over = False\n",
        tests=_WAY_BACK,
    ),
    Fault(
        "a changefeed that was cut over goes on beside its way back",
        '    if info.way_back is not None and info.way_back.mark_ts is not None:\n        raise WrongState(\n            f"changefeed',
        '    if info.way_back is not None and info.way_back.open:\n        raise WrongState(\n            f"changefeed',
        tests=_WAY_BACK,
    ),
    Fault(
        "a table that would come back under another name is no obstacle",
        '    if moved:\n        yield f"routes:',
        '    if len(moved) > len(names):\n        yield f"routes:',
        tests=_WAY_BACK,
    ),
    Fault(
        "a cut-over that was given up ends its changefeed when a late call goes on",
        "            _check_is(asked, info)\n            return verbs.ending(",
        "            return verbs.ending(",
        tests=_WAY_BACK,
    ),
)
