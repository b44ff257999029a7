"""`readiness_page`, `letters_page`, `history_page`: what is asked of source, target or etcd when a user wants to know it, and never by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from console import words
from console.frame import Columns, WebPage, button, listed
from console.markup import Content, Markup, join, link, name, tag

_MOST_REASON = 300


def readiness_page(feed: str, found: pb.Readiness) -> WebPage:
    takes = f"It would take about {words.span(found.takes.ToTimedelta())}." if found.HasField("takes") else ""
    findings = (
        tag(
            "li",
            words.chip("bad", "✖", "in the way") if each.in_the_way else words.chip("info", "●", "note"),
            f" {each.message}",
        )
        for each in found.findings
    )
    verdict = words.chip("ok", "✔", "ready") if found.ready else words.chip("bad", "✖", "not ready")
    asked = ("Asked just now; reload to ask again. ", tag("code", f"sluice changefeed ready {feed}"))
    return _page(
        feed,
        "Cut-over of",
        tag("p", verdict, " ", takes),
        tag("ul", findings, class_="findings"),
        tag("p", *asked, class_="dim"),
    )


def letters_page(feed: str, found: Iterable[pb.RejectedRow], most: int, *, may_act: bool) -> WebPage:
    """By table and reason. No key of a document is shown."""
    groups: dict[tuple[str, str], list[pb.RejectedRow]] = {}
    for each in found:
        groups.setdefault((each.table_id, _code(each.error)), []).append(each)
    columns: Columns[list[pb.RejectedRow]] = (
        ("Table", lambda rows: name(rows[0].table)),
        ("Rows", lambda rows: f"{len(rows):,}"),
        ("Reason", lambda rows: _code(rows[0].error)),
        ("First", lambda rows: min(words.moment(row, "first_rejected_at") for row in rows)),
        ("Newest", lambda rows: max(words.moment(row, "rejected_at") for row in rows)),
        ("", lambda rows: _buttons(feed, rows[0].table_id) if may_act else ""),
    )
    ordered = [groups[key] for key in sorted(groups, key=lambda key: (-len(groups[key]), key))]
    read = sum(map(len, ordered))
    return _page(
        feed,
        "Letters of",
        listed("Rows that the target rejects, by reason", columns, ordered) if groups else tag("p", "There are none."),
        tag("p", f"Only the first {most:,} were read.", class_="dim") if read >= most else None,
        tag("p", "Which rows: ", tag("code", f"sluice table rejected {feed}"), class_="dim"),
    )


def _code(error: str) -> str:
    """Errors of one cause differ in the values that they quote."""
    return error.partition(" collection:")[0].partition(": {")[0][:_MOST_REASON]


def _buttons(feed: str, table_id: str) -> Markup:
    retry = button("Try again", "feed", feed, "act", "letters-retry", table=table_id)
    return tag("div", retry, button("Forget", "feed", feed, "act", "letters-drop", table=table_id), class_="actions")


def history_page(feed: str, found: Iterable[pb.HistoryEntry]) -> WebPage:
    newest = list(reversed(list(found)))
    caption = "What users changed, its states and its DDLs, the newest first"
    return _page(
        feed,
        "History of",
        listed(caption, _HISTORY, newest) if newest else tag("p", "Nothing is known."),
        tag("p", tag("code", f"sluice changefeed history {feed}"), class_="dim"),
    )


def _what(entry: pb.HistoryEntry) -> Content:
    """The subject of a DDL is the whole of it."""
    return join(tag("b", entry.action), " ", name(words.with_times(entry.subject.removeprefix(f"{entry.action} "))))


_HISTORY: Columns[pb.HistoryEntry] = (
    ("At", lambda each: tag("span", words.moment(each, "at"), class_="nowrap")),
    ("What", _what),
    ("Who", lambda each: " ".join(filter(None, (each.by, f"({each.role})" if each.role else ""))) or words.NOTHING),
    ("From", lambda each: each.address or words.NOTHING),
    ("Change", lambda each: " → ".join(filter(None, (each.before, each.after)))),
    ("Note", lambda each: each.note),
)


def _page(feed: str, title: str, *content: Content) -> WebPage:
    return WebPage(
        title=f"{title} {feed}",
        above=tag("div", _where(feed), tag("h1", f"{title} ", name(feed)), *content, class_="card"),
    )


def _where(feed: str) -> Markup:
    return tag(
        "nav",
        tag("a", "Changefeeds", href="/"),
        " / ",
        tag("a", name(feed), href=link("feed", feed)),
        aria_label="Where you are",
    )
