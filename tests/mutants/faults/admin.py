"""Faults of the room `admin`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_ROOM = ("tests/unit/admin/services", "tests/unit/admin/test_access.py")
_STORE = ("tests/unit/admin/desired",)

ADMIN = (
    Fault(
        "a stream call may be made by a viewer",
        "        def answer(self: Guarded, request: Any, context: Any) -> Iterator[Any]:\n"
        "            with _answering(method.__name__, context):\n"
        "                self.guard.demand(access, context.invocation_metadata())\n",
        "        def answer(self: Guarded, request: Any, context: Any) -> Iterator[Any]:\n"
        "            with _answering(method.__name__, context):\n",
        tests=_ROOM,
    ),
    Fault(
        "a call may be made by a viewer",
        "        def answer(self: Guarded, request: Any, context: Any) -> Any:\n"
        "            with _answering(method.__name__, context):\n"
        "                self.guard.demand(access, context.invocation_metadata())\n",
        "        def answer(self: Guarded, request: Any, context: Any) -> Any:\n"
        "            with _answering(method.__name__, context):\n",
        tests=_ROOM,
    ),
    Fault(
        "a cut-over may be made by a viewer",
        "    @streaming(Access.OPERATOR)\n    def FinalizeChangefeed(",
        "    @streaming(Access.VIEWER)\n    def FinalizeChangefeed(",
        tests=_ROOM,
    ),
    Fault(
        "a table may be copied anew by a viewer",
        "    @unary(Access.OPERATOR)\n    def RecopyTables(",
        "    @unary(Access.VIEWER)\n    def RecopyTables(",
        tests=_ROOM,
    ),
    Fault(
        "errors to callers are not redacted",
        "problems = _fitting(tuple(map(redacted, said)))",
        "problems = _fitting(tuple(said))",
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
        "if needed is Access.OPERATOR and granted is not Access.OPERATOR:",
        "if needed is Access.OPERATOR and granted not in tuple(Access):",
        tests=_ROOM,
    ),
    Fault(
        "a damaged token file locks everybody out",
        '            except SluiceError as error:\n                _log.error("tokens_not_read_again", error=str(error))',
        "            except SluiceError as error:\n                self._tokens = ()\n"
        '                _log.error("tokens_not_read_again", error=str(error))',
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
        "rev = compare_and_swap(self._etcd, (ModRevIs(key, found.mod_rev),), ops)",
        "rev = compare_and_swap(self._etcd, (CreateRevIs(key, found.create_rev),), ops)",
        tests=_STORE,
    ),
    Fault(
        "a request reaches a later changefeed of the same name",
        "return compare_and_swap(self._etcd, (CreateRevIs(info, found.create_rev),), (put,))",
        "return compare_and_swap(self._etcd, (), (put,))",
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
        "                if reason:\n                    return HTTPStatus.SERVICE_UNAVAILABLE,",
        "                if False:\n                    return HTTPStatus.SERVICE_UNAVAILABLE,",
        tests=("tests/unit/admin/test_http_server.py",),
    ),
)
