"""`WebPage`, `document`: the frame around each page: its head, the bar that says when what is shown is old, and who is signed in. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from console.markup import Content, Markup, join, link, tag
from console.words import clock

_RELOAD_SECONDS = "10"
"""Of a browser without JavaScript."""

_NOTHING = Markup()

T = TypeVar("T")
Columns = Sequence[tuple[str, Callable[[T], Content]]]
"""Of a table: their titles, and what stands there of an item. The first one names the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """`sections`: the parts that change by themselves, by their ids. A page without `at` does not change."""

    title: str
    sections: Mapping[str, Markup] = field(default_factory=dict)
    above: Markup = _NOTHING
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who looks at a page. `csrf` is in each form that changes something. `name`: empty where nobody signs in."""

    name: str = ""
    may_act: bool = False
    csrf: str = ""


def document(
    page: WebPage, visitor: Visitor, *, cluster: str, live: str = "", stale: str = "", note: str = ""
) -> Markup:
    """`live`: where its changes come from. `stale`: why what is shown may be old. `note`: what a user has just done."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", f"{page.title} · Sluice {cluster}"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="/console.svg"),
        tag("link", rel="stylesheet", href="/console.css"),
        tag("script", src="/console.js", defer=True),
        tag("noscript", tag("meta", http_equiv="refresh", content=_RELOAD_SECONDS)) if live else None,
    )
    body = tag(
        "body",
        tag("a", "Skip to content", href="#main", class_="skip"),
        _banner(page, visitor, cluster),
        tag("p", stale, id="stale", class_="stale", role="alert", hidden=not stale),
        tag(
            "main",
            tag("p", note, class_="note", role="status") if note else None,
            page.above,
            (section(id, content) for id, content in page.sections.items()),
            id="main",
            tabindex="-1",
        ),
        tag("dialog", id="dialog", aria_labelledby="act-title"),
        data_live=live or None,
    )
    return join(Markup("<!doctype html>\n"), tag("html", head, body, lang="en"))


def section(id: str, content: Markup) -> Markup:
    """One that is empty keeps its place."""
    return tag("section", content, id=id, hidden=not content, aria_live="polite" if id == "needs" else None)


def titled(title: str, *content: Content) -> Markup:
    return join(tag("h2", title), *content)


def listed(
    caption: str, columns: Columns[T], items: Iterable[T], *, id: Callable[[T], str] | None = None, class_: str = ""
) -> Markup:
    """A table with a row for each item. `id`: by which the script knows its row again.

    Roles are written: on a narrow screen a row is a card, and browsers would no longer see a table.
    """
    heads = (tag("th", title, scope="col", role="columnheader") for title, _ in columns)
    (_, first), *others = columns
    rows = (
        tag(
            "tr",
            tag("th", first(each), scope="row", role="rowheader"),
            (tag("td", _cell(cell(each)), role="cell", data_label=title) for title, cell in others),
            id=id(each) if id else None,
            role="row",
        )
        for each in items
    )
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", heads, role="row"), role="rowgroup"),
        tag("tbody", rows, role="rowgroup"),
        class_=class_ or None,
        role="table",
    )


def _cell(content: Content) -> Content:
    """One element, beside its label on a narrow screen."""
    return tag("div", content) if isinstance(content, Markup) and content else content


def facts(found: Iterable[tuple[str, Content, Content]]) -> Markup:
    """Figures side by side, each with its title and a remark."""
    return tag(
        "dl",
        (
            tag("div", tag("dt", title), tag("dd", value), tag("dd", remark, class_="dim") if remark else None)
            for title, value, remark in found
        ),
        class_="facts",
    )


def dim(text: str) -> Content:
    return tag("div", text, class_="dim") if text else None


def hidden(visitor: Visitor) -> Markup:
    return tag("input", type="hidden", name="csrf", value=visitor.csrf)


def login_page(problem: str = "") -> WebPage:
    form = tag(
        "form",
        tag("h1", "Sign in"),
        tag("p", problem, class_="problem", role="alert") if problem else None,
        tag("input", name="username", value="token", autocomplete="username", hidden=True),
        tag("label", "Token", for_="token"),
        tag("input", id="token", name="token", type="password", autocomplete="current-password", required=True),
        tag(
            "p",
            "A line of the node's token file is name:role:token; paste the token. It stays on the node.",
            class_="hint",
        ),
        tag("button", "Sign in", class_="button primary"),
        method="post",
        action="/login",
        class_="card sign-in",
    )
    return WebPage(title="Sign in", above=form)


def message_page(title: str, *content: Content) -> WebPage:
    back = tag("p", tag("a", "All changefeeds", href="/"))
    return WebPage(title=title, above=tag("div", tag("h1", title), *content, back, class_="card"))


def _banner(page: WebPage, visitor: Visitor, cluster: str) -> Markup:
    role = "operator" if visitor.may_act else "viewer"
    leave = tag(
        "form",
        hidden(visitor),
        tag("span", f"{visitor.name} ({role})", class_="who"),
        tag("button", "Sign out", class_="button quiet"),
        method="post",
        action="/logout",
    )
    return tag(
        "header",
        tag("a", tag("span", class_="mark", aria_hidden="true"), "Sluice", href="/", class_="brand"),
        tag("span", tag("span", "cluster ", class_="dim"), tag("bdi", cluster), class_="cluster"),
        tag("span", _as_of(page.at), id="as-of", class_="as-of") if page.at else None,
        leave if visitor.name else None,
        class_="banner",
    )


def _as_of(at: datetime) -> Markup:
    return join(
        tag("span", class_="pulse", aria_hidden="true"), "as of ", tag("time", clock(at), datetime=at.isoformat())
    )


def button(label: str, *path: str, class_: str = "", **query: str) -> Markup:
    """Leads to a form that says what will happen, and asks."""
    return tag("a", label, href=link(*path, **query), class_=f"button {class_}".strip(), data_dialog=True)
