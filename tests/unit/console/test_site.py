"""Who gets which page, and whose forms are obeyed: the services are real, on an etcd in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from admin.access import Access, AccessToken, Guard
from admin.cluster_reader import ClusterReader
from admin.desired.desired_store import DesiredStore
from admin.diagnosis import Diagnosis
from admin.server import Services
from admin.services.changefeed_service import ChangefeedService
from admin.services.node_service import NodeService
from admin.services.table_service import DdlService, TableService
from admin.services.verify_service import VerifyService
from changefeed.config.configuration import Configuration
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState
from console.actions import Actions
from console.observer import Observer
from console.sessions import Sessions
from console.site import Site, WebAnswer, WebRequest
from coordination.etcd.protocol import Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from tests.memory_etcd import MemoryEtcd

ID, LAYOUT, HOST = ChangefeedId("orders"), Layout("test"), "sluice.example:8302"
OPERATOR, VIEWER = "o" * 32, "v" * 32
TOKENS = (AccessToken(Access.OPERATOR, OPERATOR, "maria"), AccessToken(Access.VIEWER, VIEWER, "wall"))


class Door:
    """A site, and a browser that keeps its cookie."""

    def __init__(self, tokens: tuple[AccessToken, ...] | None = TOKENS) -> None:
        self.etcd = MemoryEtcd()
        configuration = Configuration.parse({"id": ID, "source": "mongodb://u:pw@a", "sink": "mongodb://b"})
        info = ChangefeedInfo(configuration=configuration, created_at=datetime.now(UTC))
        self.etcd.txn([], [Put(LAYOUT.info(ID), encode(info))])
        self.mirror = Mirror(self.etcd.connect(), LAYOUT.root)
        self.reader, self.store = ClusterReader(self.mirror, LAYOUT), DesiredStore(self.etcd.connect(), LAYOUT)
        self.tokens = tokens
        self.guard = Guard(None if tokens is None else lambda: self.tokens or ())
        self.sessions = Sessions(self.guard, "test")
        self.site = self.made()
        self.cookies: dict[str, str] = {}
        self.mirror.start()
        self.mirror.at_least(1, timedelta(seconds=10), whole=True)

    def made(self) -> Site:
        stopping, parts = threading.Event(), (self.guard, self.reader, self.store)
        services = Services(
            changefeeds=ChangefeedService(*parts, stopping),
            nodes=NodeService(*parts, Diagnosis(version="1", configuration="", registry=CollectorRegistry())),
            tables=TableService(*parts),
            ddls=DdlService(*parts),
            verifications=VerifyService(*parts, stopping),
        )
        observer = Observer(self.reader, dict)
        return Site(self.guard, Sessions(self.guard, "test"), observer, Actions(services), str)

    def get(self, *path: str, **changed: Any) -> WebAnswer:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        asked = WebRequest(path=path, host=HOST, cookies=cookies, address="10.0.0.7", secure=True)
        return self.kept(self.site.answer(replace(asked, **changed)))

    def post(self, *path: str, form: Mapping[str, str], **changed: Any) -> WebAnswer:
        return self.get(*path, **{"form": form, "origin": f"https://{HOST}", **changed})

    def kept(self, answer: WebAnswer) -> WebAnswer:
        if answer.cookie:
            name, _, value = answer.cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    def enter(self, token: str) -> WebAnswer:
        return self.post("login", form={"token": token})

    @property
    def csrf(self) -> str:
        page = self.get("feed", ID, "act", "pause").body
        return page.partition('name="csrf" value="')[2].partition('"')[0]

    @property
    def desired(self) -> DesiredState:
        return self.store.read(ID)[0].desired


@pytest.fixture
def door() -> Any:
    made = Door()
    yield made
    made.mirror.stop()


def test_nobody_sees_a_page_without_a_token(door: Door) -> None:
    for path in ((""), ("feed", ID), ("feed", ID, "letters"), ("feed", ID, "act", "pause")):
        answer = door.get(*([path] if isinstance(path, str) else path))
        assert (answer.status, answer.location) == (303, "/login"), path
    assert door.get("live", query={"path": "/"}).status == 401
    assert door.enter("x" * 32).status == 403
    assert door.get("console.css").status == 200
    assert door.cookies == {}


def test_a_cookie_is_out_of_reach_of_scripts_and_other_sites(door: Door) -> None:
    cookie = door.enter(OPERATOR).cookie
    for flag in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/", "Max-Age=43200"):
        assert flag in cookie
    assert OPERATOR not in cookie
    assert "Secure" not in Door().post("login", form={"token": OPERATOR}, secure=False).cookie


def test_a_cookie_holds_on_every_node_and_after_a_restart_until_its_token_is_gone(door: Door) -> None:
    door.enter(OPERATOR)
    door.site = door.made()
    assert ID in door.get("").body
    door.tokens = (TOKENS[1],)
    assert door.get("").location == "/login"


@pytest.mark.parametrize("theirs", [{"prefs": '{"a":1}'}, {"a b": "é"}, {"": ""}, {"x": 'y="1'}])
def test_a_cookie_is_found_beside_those_of_another_application(door: Door, theirs: dict[str, str]) -> None:
    door.cookies = dict(theirs)
    door.enter(OPERATOR)
    assert ID in door.get("").body


@pytest.mark.parametrize("tokens", [TOKENS[1:], (AccessToken(Access.VIEWER, OPERATOR, "maria"), TOKENS[1])])
def test_an_open_page_is_kept_fresh_until_its_token_is_gone_or_has_another_role(
    door: Door, tokens: tuple[AccessToken, ...]
) -> None:
    door.enter(OPERATOR)
    draw = door.get("live", query={"path": f"/feed/{ID}"}).live
    assert draw is not None
    assert draw() is not None
    door.tokens = tokens
    assert draw() is None


def test_a_cookie_cannot_be_prolonged_or_made(door: Door) -> None:
    door.enter(VIEWER)
    [(name, value)] = door.cookies.items()
    ends, _, signature = value.partition(".")
    for forged in (f"{int(ends) + 1}.{signature}", f"{ends}.{'0' * 64}", f"{ends}.", "", "é.é", f"1.{signature}"):
        door.cookies[name] = forged
        assert door.get("").location == "/login", forged


def test_an_operators_form_is_obeyed_and_audited(door: Door) -> None:
    door.enter(OPERATOR)
    answer = door.post("feed", ID, "act", "pause", form={"csrf": door.csrf})
    assert (answer.status, answer.location) == (303, f"/feed/{ID}?done=pause")
    assert door.desired is DesiredState.PAUSED
    history = [kv.value.decode() for kv in door.etcd.range("").items if "history" in kv.key]
    assert any("maria" in text and "10.0.0.7" in text for text in history), history
    shown = door.get("feed", ID, "history").body
    assert all(text in shown for text in ("maria (operator)", "10.0.0.7", "pause")), shown


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"form": {}}, 403),
        ({"form": {"csrf": "0" * 64}}, 403),
        ({"origin": ""}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": f"https://{HOST}.evil.example"}, 403),
        ({"host": ""}, 403),
    ],
)
def test_a_form_of_another_site_is_not_obeyed(door: Door, changed: dict[str, Any], status: int) -> None:
    door.enter(OPERATOR)
    form = {"csrf": door.csrf}
    assert door.post("feed", ID, "act", "pause", **{"form": form, **changed}).status == status
    assert door.desired is DesiredState.RUNNING


def test_a_viewer_sees_all_and_changes_nothing(door: Door) -> None:
    door.enter(VIEWER)
    assert ID in door.get("").body
    page = door.get("feed", ID)
    assert (page.status, "/act/" in page.body, "pw" in page.body) == (200, False, False)
    assert door.get("feed", ID, "act", "pause").status == 403
    operator = Door()
    operator.enter(OPERATOR)
    csrf = operator.csrf
    operator.mirror.stop()
    assert door.post("feed", ID, "act", "pause", form={"csrf": csrf}).status == 403
    assert door.desired is DesiredState.RUNNING


def test_what_ends_a_changefeed_is_done_only_after_its_name_was_typed(door: Door) -> None:
    door.enter(OPERATOR)
    answer = door.post("feed", ID, "act", "finalize", form={"csrf": door.csrf, "typed": "order"})
    assert (answer.status, "nothing was done" in answer.body) == (400, True)


def test_a_refusal_is_told_where_it_was_asked(door: Door) -> None:
    door.enter(OPERATOR)
    answer = door.post("feed", ID, "act", "table-stop", form={"csrf": door.csrf, "subject": "shop.<b>"})
    assert answer.status == 404
    assert "no table" in answer.body
    assert "shop.&lt;b&gt;" in answer.body
    assert "<b>&gt;" not in answer.body


def test_without_tokens_only_this_machine_is_answered_by_whatever_name_it_is_called() -> None:
    door = Door(tokens=None)
    try:
        for host in ("localhost:8302", "127.0.0.1:8302", "[::1]:8302"):
            assert door.get("", host=host).status == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "", "10.0.0.7:8302"):
            assert door.get("", host=host).status == 403, host
    finally:
        door.mirror.stop()


@pytest.mark.parametrize(
    "path",
    [
        ("feed", "nothing"),
        ("feed", "a", "b"),
        ("x",),
        ("feed",),
        ("node", "n", "act", "pause"),
        ("feed", ID, "act", "drain"),
    ],
)
def test_what_there_is_not_is_said(door: Door, path: tuple[str, ...]) -> None:
    door.enter(OPERATOR)
    assert door.get(*path).status == 404
