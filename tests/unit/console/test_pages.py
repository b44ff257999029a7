"""Pages are functions of what they show. `SLUICE_RECORD_PAGES=1` records them anew, after a change of what they should look like."""

from __future__ import annotations

import os
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from console.action_forms import ACTIONS, NODE_ACTIONS, AskedAction, action_page
from console.feed_page import feed_page
from console.frame import Visitor, WebPage, document, login_page, message_page
from console.lookups import history_page, letters_page, readiness_page
from console.markup import link, tag, text
from console.overview_page import overview
from console.words import with_times
from tests.unit.console.pictures import cluster_picture, feed, feed_picture, filled

_GOLDEN = Path(__file__).parent / "golden"
_OPERATOR, _VIEWER = Visitor(name="maria", may_act=True, csrf="c5f"), Visitor(name="wall", may_act=False, csrf="c5f")


def _form(text: str, verb: str) -> WebPage:
    on = "" if verb in ("pause", "resume", "update", "verify", "finalize") else text
    return action_page(
        AskedAction(verb=verb, feed=text, subject=on, called=on, nodes=[text]), _OPERATOR, {"copy_limit": text}, text
    )


PAGES: dict[str, Callable[[str], WebPage]] = {
    "overview": lambda text: overview(cluster_picture(text), may_act=True),
    "feed": lambda text: feed_page(feed_picture(text), may_act=True),
    "readiness": lambda text: readiness_page(text, filled(pb.Readiness(), text)),
    "letters": lambda text: letters_page(text, [filled(pb.RejectedRow(), text)], 1, may_act=True),
    "history": lambda text: history_page(text, [filled(pb.HistoryEntry(), text)]),
    "message": lambda text: message_page(text, text),
    "login": login_page,
    **{verb: lambda text, verb=verb: _form(text, verb) for verb in ACTIONS},  # type: ignore[misc]  # mypy cannot infer the default
    **{
        verb: lambda text, verb=verb: action_page(  # type: ignore[misc]
            AskedAction(verb=verb, subject=text, called=text), _OPERATOR, {}, text
        )
        for verb in NODE_ACTIONS
    },
}


def _whole(page: WebPage, text: str) -> str:
    return document(
        page, Visitor(name=text, may_act=True, csrf=text), cluster=text, live="/live", stale=text, note=text
    )


class _Structure(HTMLParser):
    """The tags with the names of their attributes, and the values of those that lead somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [str(value) for name, value in attrs if name in ("href", "src", "action", "formaction")]
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]


def _structure(html: str) -> _Structure:
    found = _Structure()
    found.feed(html)
    return found


_NASTY = st.text(
    st.sampled_from("<>&\"'`=/\\ \t\n\r\0\x1b\x7f\u202e\u2066\u200f\u2028\ufeffab;:({%#é漢א😀")
    | st.characters(codec="utf-8"),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("name", PAGES)
@settings(max_examples=20)
@given(text=_NASTY)
@example(text="<script>alert(1)</script>")
@example(text='"><img src=x onerror=alert(1)>')
@example(text="' onmouseover='alert(1)")
@example(text="javascript:alert(1)")
@example(text="//evil.example/")
@example(text="--><!--]]>&lt;&#x3c;")
@example(text="\u202egpj.exe\u2066")
@example(text="a\nb\r\nSet-Cookie: x=y")
@example(text="漢" * 85)
def test_no_name_changes_what_a_page_is_made_of(name: str, text: str) -> None:
    shown = _whole(PAGES[name](text), text)
    found, plain = _structure(shown), _structure(_whole(PAGES[name]("x"), "x"))
    assert found.tags == plain.tags
    assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in found.links)
    assert not set(shown) & set("\0\x1b\x7f\u202e\u2066\u200f\u2028\ufeff\ud800")
    shown.encode()


@pytest.mark.parametrize(
    "name", ["overview", "feed", "table-stop", "finalize", "readiness", "letters", "history", "login"]
)
def test_a_page_looks_as_it_was_recorded(name: str) -> None:
    shown = document(PAGES[name]("shop.a"), _OPERATOR, cluster="east", live="/live").replace("><", ">\n<") + "\n"
    path = _GOLDEN / f"{name}.html"
    if os.environ.get("SLUICE_RECORD_PAGES"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def test_what_no_encoding_has_is_shown_as_an_escape() -> None:
    assert text("a\udc80b") == "a\\udc80b"
    assert tag("a", href=link("feed", "\udc80", q="\ud800")).encode()


def test_an_address_of_another_server_is_a_mistake_of_ours() -> None:
    for address in ("https://evil.example", "//evil.example", "javascript:alert(1)", "", " /"):
        with pytest.raises(ValueError, match="href"):
            tag("a", href=address)


def test_a_viewer_sees_the_same_and_has_no_buttons() -> None:
    for page in (overview(cluster_picture("x"), may_act=False), feed_page(feed_picture("x"), may_act=False)):
        assert "/act/" not in document(page, _VIEWER, cluster="east", live="/live")
    for page in (PAGES["overview"]("x"), PAGES["feed"]("x")):
        assert "/act/" in document(page, _OPERATOR, cluster="east", live="/live")


def test_what_is_finished_has_no_lag_and_offers_nothing_that_would_be_refused() -> None:
    page = feed_page(feed_picture("x", lambda text: feed(text, state=pb.CHANGEFEED_STATE_FINISHED)), may_act=True)
    assert {verb for verb in ACTIONS if f"/act/{verb}" in page.sections["feed"]} == {"resume", "update", "verify"}
    assert "/act/" not in page.sections["tables"]
    assert "polyline" not in page.sections["feed"]


def test_cluster_times_are_told_as_clocks_show_them() -> None:
    waits = "table shop.a_1795224774.9, which is at 1795224774.9, of 12.5 or 11795224774.9"
    assert with_times(waits) == waits.replace("at 1795224774.9", "at 2026-11-21\N{NO-BREAK SPACE}01:32:54")


@pytest.mark.parametrize("named", ["shop.1795224774.9", "1795224774.9", "9876543210.2024", "is at 9876543210.2024"])
def test_a_tables_name_that_looks_like_a_cluster_time_stays_as_it_is(named: str) -> None:
    assert with_times(f"table {named} to be assigned to a node") == f"table {named} to be assigned to a node"


def test_what_loses_data_or_ends_a_changefeed_wants_its_name_typed() -> None:
    typed = {verb for verb, action in ACTIONS.items() if action.typed}
    assert typed == {"finalize", "ddl-skip", "letters-drop"}
    for verb in typed:
        assert 'name="typed"' in _form("x", verb).above


def test_the_equal_command_is_one_that_a_shell_takes_as_it_is() -> None:
    asked = AskedAction(verb="table-stop", feed="f", subject="id", called="shop.it's $(x)")
    assert asked.command == """sluice table stop f 'shop.it'"'"'s $(x)'"""
