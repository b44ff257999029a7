"""`feed_page`: one changefeed: what needs a user, where the barrier is, its DDLs, its copy and its tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.position import Position
from changefeed.printable import counted, sized
from console import words
from console.drawings import LagScale, share_bar
from console.frame import Columns, WebPage, button, dim, facts, listed, titled
from console.markup import Content, Markup, join, link, name, tag
from console.overview_page import copy_cell, lag_cells
from console.picture import TABLES_A_PAGE, FeedPicture, Lane, Task

NEWEST_DDLS = 50


def feed_page(picture: FeedPicture, *, may_act: bool) -> WebPage:
    feed = picture.feed
    return WebPage(
        title=feed.id,
        sections={
            "feed": _head(picture, may_act=may_act),
            "needs": _needs(picture, may_act=may_act),
            "tasks": _tasks(picture),
            "barrier": _barrier(picture),
            "copy": _copies(feed),
            "ddl": _timeline(picture),
            "sync": _sync_points(picture),
            "slowest": _slowest(feed),
            "tables": _tables(picture, may_act=may_act),
            "share": _share(picture),
            "configuration": _configuration(feed),
        },
        at=picture.at,
    )


def _head(picture: FeedPicture, *, may_act: bool) -> Markup:
    feed, figures = picture.feed, picture.figures
    letters, held = feed.open_letters, f"{feed.held_tables:,} held by DDL" if feed.held_tables else ""
    shown: list[tuple[str, Content, Content]] = [
        ("Lag", *lag_cells(feed, figures, picture.at)),
        ("Checkpoint", words.age(feed.checkpoint, picture.at), words.place(feed.checkpoint)),
        ("Oplog left", words.oplog_left(figures.oplog_left, scarce=figures.oplog_scarce), ""),
        ("Rows/s", words.rate(figures.rows_rate), f"{feed.rows.applied:,} in all"),
        ("Tables", words.number(feed.tables), held),
        ("Open letters", words.number(letters.count), sized(letters.bytes) if letters.bytes else ""),
    ]
    if feed.HasField("copy"):
        shown.append(("Copy", copy_cell(feed), ""))
    shown += [
        (what, value, "")
        for what, value in (("Copy limit", feed.copy_limit), ("Apply limit", feed.apply_limit), ("Delay", feed.delay))
        if value
    ]
    asked = (("Ready to cut over?", "readiness"), ("History", "history"))
    links = [tag("a", label, href=link("feed", feed.id, what), class_="button quiet") for label, what in asked]
    return join(
        tag("nav", tag("a", "Changefeeds", href="/"), aria_label="Where you are"),
        tag(
            "div",
            tag("h1", name(feed.id)),
            words.state_chip(feed),
            tag("div", links, _actions(feed) if may_act else None, class_="actions"),
            class_="title",
        ),
        facts(shown),
    )


def _actions(feed: pb.Changefeed) -> Markup:
    state = words.state_of(feed)
    runs = state in ("normal", "warning", "pending", "starting")
    verbs = ["pause" if runs else "resume", "update", "verify", *["finalize"] * (state != "finished")]
    return join(_act(feed, verb, verb.capitalize()) for verb in verbs)


def _act(feed: pb.Changefeed, verb: str, label: str, class_: str = "", **query: str) -> Markup:
    return button(label, "feed", feed.id, "act", verb, class_=class_, **query)


def _needs(picture: FeedPicture, *, may_act: bool) -> Markup:
    cards = list(_needed(picture, may_act=may_act))
    if not cards:
        return titled("What needs you", tag("p", words.chip("ok", "✔", "nothing"), class_="card calm"))
    more = picture.feed.stopped_tables - len(picture.feed.stopped)
    tail = tag("p", f"and {more:,} more tables, listed below", class_="dim") if more > 0 else None
    return titled("What needs you", tag("div", cards, class_="needs"), tail)


def _needed(picture: FeedPicture, *, may_act: bool) -> Iterator[Markup]:
    feed = picture.feed
    if feed.HasField("error"):
        since = words.moment(feed.error, "at")
        retry = f"; tries again at {words.moment(feed, 'retry_at')} UTC" if feed.HasField("retry_at") else ""
        yield _card("bad", feed.error.code, feed.error.message, f"since {since} UTC{retry}")
    if feed.still_on:
        yield _card("warn", "still stopping", f"Something of it still runs on {', '.join(feed.still_on)}.")
    for stopped in feed.stopped:
        why = (
            stopped.error.message
            if stopped.HasField("error")
            else "A user stopped it; nothing of it is written until it is resumed."
        )
        buttons = [
            _act(feed, "table-resume", "Resume", "primary", table=stopped.id),
            _act(feed, "table-recopy", "Copy anew", table=stopped.id),
        ]
        shown = buttons[1:] if stopped.trouble == "lost" else buttons
        heading = join("table ", name(stopped.name), " ", words.table_chip(stopped.trouble))
        yield _card("bad", heading, why, buttons=shown if may_act else ())
    for ddl in picture.ddls:
        if ddl.state in ("pending", "executing") and not ddl.HasField("refused"):
            waits = (
                f"It waits for {words.with_times(ddl.waits_for)}."
                if ddl.waits_for
                else "It runs at the target now."
                if ddl.executing_at.seconds
                else ""
            )
            if waits and _old(ddl, picture.at):
                yield _card("warn", join("open DDL ", _ddl(ddl)), waits, f"seen {words.moment(ddl, 'seen_at')} UTC")
        elif ddl.HasField("refused") and ddl.state == "pending":
            skip = _act(feed, "ddl-skip", "Skip this DDL", ddl=ddl.position)
            yield _card("bad", join("refused DDL ", _ddl(ddl)), ddl.refused.message, buttons=[skip] if may_act else ())
    if feed.open_letters.count:
        letters = tag("a", "See which, and why", href=link("feed", feed.id, "letters"), class_="button")
        rows = counted(feed.open_letters.count, "row")
        yield _card(
            "bad",
            f"{rows} rejected by the target",
            "They are not replicated while they have letters.",
            buttons=[letters],
        )


def _old(ddl: pb.Ddl, now: datetime) -> bool:
    """Most DDLs are done within a second or two: they need nobody."""
    return now.timestamp() - ddl.seen_at.seconds >= 3


def _card(kind: str, title: Content, message: str, remark: str = "", buttons: Content | list[Markup] = ()) -> Markup:
    return tag(
        "article",
        tag("h3", title),
        tag("p", message),
        dim(remark),
        tag("div", buttons, class_="actions") if buttons else None,
        class_=f"card need {kind}",
    )


def _ddl(ddl: pb.Ddl) -> Markup:
    renamed = (" to ", name(ddl.renamed_to)) if ddl.renamed_to else ()
    return join(tag("b", ddl.type), " ", name(ddl.table), *renamed)


def _tasks(picture: FeedPicture) -> Markup:
    return titled("Started here", map(_task, picture.tasks)) if picture.tasks else Markup()


def _task(task: Task) -> Markup:
    running = task.ended_at is None
    state = ("info", "▶", "running") if running else ("bad", "✖", "failed") if task.failed else ("ok", "✔", "done")
    when = f"started {words.clock(task.started_at)}" + (
        f", ended {words.clock(task.ended_at)}" if task.ended_at else ""
    )
    lines = tag("ul", (tag("li", line) for line in task.lines)) if task.lines else None
    return tag(
        "article", tag("h3", task.verb, " ", words.chip(*state)), tag("p", task.said), lines, dim(when), class_="card"
    )


def _barrier(picture: FeedPicture) -> Markup:
    feed = picture.feed
    if not picture.lanes or not feed.resolved:
        return Markup()
    newest = max(_at(feed.resolved), *(_at(lane.position) for lane in picture.lanes))
    behind = [(newest - _at(lane.position)).total_seconds() for lane in picture.lanes]
    scale = LagScale(max(behind))
    walls = [(newest - _at(lane.barrier or picture.barrier or feed.resolved)).total_seconds() for lane in picture.lanes]
    rows = (_lane(picture, scale, *each) for each in zip(picture.lanes, behind, walls, strict=True))
    legend = "A bar ends at the checkpoint of its tables; a line is the barrier that they may not pass yet: only a DDL holds it back."
    places = (("checkpoint", feed.checkpoint), ("barrier", picture.barrier), ("resolved", feed.resolved))
    facts = [tag("span", f"{what} {words.place(position)}", class_="nowrap") for what, position in places if position]
    axis = tag("div", tag("span", "behind the newest known position", class_="dim"), scale.axis(), class_="lane-row")
    return titled(
        "Barrier",
        tag("div", axis, rows, tag("p", legend, class_="dim"), tag("p", facts, class_="dim places"), class_="card"),
    )


def _lane(picture: FeedPicture, scale: LagScale, lane: Lane, behind: float, wall: float) -> Markup:
    kind = "held" if lane.ddl else "bad" if lane.trouble else "ok"
    names = ", ".join(lane.some) + (
        f" and {lane.tables - len(lane.some):,} more" if lane.tables > len(lane.some) else ""
    )
    why = f"held by {lane.ddl}" if lane.ddl else lane.trouble
    where = f"{counted(lane.tables, 'table')} on {picture.names.get(lane.node, lane.node) or 'no node'}"
    meaning = f"{where}: {words.span(behind)} behind" + (f", {why}" if why else "")
    label = tag(
        "span", tag("b", where), tag("span", names, class_="dim names"), tag("span", why, class_="why") if why else None
    )
    return tag("div", label, scale.lane(behind, wall, kind, meaning), class_="lane-row")


def _at(position: str) -> datetime:
    return Position.parse(position).ts.to_datetime()


def _copies(feed: pb.Changefeed) -> Markup:
    if not feed.copies:
        return Markup()
    done = f"{feed.copy.tables_done:,} of {counted(feed.copy.tables, 'table')} done"
    return listed(f"Copy: {done}; those with most to do", _COPIES, feed.copies, id=lambda each: f"copy-{each.id}")


_COPIES: Columns[pb.TableCopy] = (
    ("Table", lambda each: name(each.name)),
    ("Done", lambda each: join(share_bar(each.copy.share, "Copied"), f"{100 * each.copy.share:.0f} %")),
    ("Copied", lambda each: f"{each.copy.documents:,} documents, {sized(each.copy.bytes)}"),
    ("Rate", lambda each: f"{sized(each.copy.bytes_rate)}/s" if each.copy.bytes_rate else words.NOTHING),
    ("Left", lambda each: words.left_of(each.copy)),
)


def _timeline(picture: FeedPicture) -> Markup:
    if not picture.ddls:
        return Markup()
    newest = list(reversed(picture.ddls))[:NEWEST_DDLS]
    longest = max((_took(ddl, picture.at) for ddl in newest), default=timedelta(0)) or timedelta(seconds=1)

    def took(ddl: pb.Ddl) -> Content:
        length = _took(ddl, picture.at)
        return join(share_bar(length / longest, "Of the longest one"), words.span(length))

    columns: Columns[pb.Ddl] = (
        ("Seen", lambda ddl: words.moment(ddl, "seen_at")),
        ("DDL", _ddl),
        ("State", words.ddl_chip),
        ("Took", took),
        ("Waits for", lambda ddl: ddl.refused.message or words.with_times(ddl.waits_for) or ddl.note),
    )
    return listed("DDL, the newest first", columns, newest, id=lambda ddl: f"ddl-{ddl.position}")


def _took(ddl: pb.Ddl, now: datetime) -> timedelta:
    if ddl.HasField("done_at"):
        return max(ddl.done_at.ToDatetime() - ddl.seen_at.ToDatetime(), timedelta(0))
    return timedelta(0) if ddl.state == "skipped" else max(now - ddl.seen_at.ToDatetime(now.tzinfo), timedelta(0))


def _sync_points(picture: FeedPicture) -> Markup:
    """Where both sides are equal, by the two times at which a user reads them there."""
    if not picture.feed.HasField("sync_points"):
        return Markup()
    points, newest = picture.feed.sync_points, picture.feed.sync_points.newest
    shown = (
        ("Newest", words.age(newest.source_ts, picture.at), words.place(newest.source_ts)),
        ("Time at the source", newest.source_ts or words.NOTHING, ""),
        ("Time at the target", newest.target_ts or words.NOTHING, ""),
        ("Made", words.number(points.made), f"{points.whole:,} without exceptions"),
        ("Given up", words.number(points.missed), points.missed_because),
        ("Held for them", words.span(points.held.ToTimedelta()), "in all"),
    )
    exceptions = listed("Tables that may differ there", _EXCEPTED, newest.excepted) if newest.excepted else None
    return titled("Sync points", facts(shown), exceptions)


_EXCEPTED: Columns[pb.ExceptedTable] = (
    ("Table", lambda each: name(", ".join(each.source))),
    ("At the target", lambda each: name(", ".join(each.target))),
    ("Why", lambda each: each.why),
)


def _slowest(feed: pb.Changefeed) -> Markup:
    columns: Columns[pb.TableLag] = (("Table", lambda each: name(each.name)), ("Lag", words.lag_of))
    return listed("Slowest tables", columns, feed.slowest) if feed.slowest else Markup()


def _tables(picture: FeedPicture, *, may_act: bool) -> Markup:
    feed, found = picture.feed, picture.tables
    query = {"q": found.query.text, "state": found.query.state}
    last = max(1, -(-found.matching // TABLES_A_PAGE))
    page = min(found.query.page, last)
    # One form around all of it: a script that replaces this section keeps what a user is typing.
    search = tag(
        "form",
        tag("label", "Name ", tag("input", name="q", value=found.query.text, type="search", id="q")),
        tag("label", "State ", tag("select", _options(picture), name="state", id="state")),
        tag("button", "Show", class_="button"),
        action=link("feed", feed.id) + "#tables",
        class_="search",
        role="search",
    )
    same = "same\N{NO-BREAK SPACE}name"
    columns: Columns[pb.Table] = (
        ("Table", lambda each: name(each.name)),
        ("State", _table_state),
        ("Lag", words.lag_of),
        ("Node", lambda each: picture.names.get(each.node, each.node) or words.NOTHING),
        ("Checkpoint", _checkpoint),
        ("Target", lambda each: same if each.target == each.name else name(each.target or words.NOTHING)),
        ("", lambda each: tag("div", list(_table_buttons(feed, each)) if may_act else (), class_="actions")),
    )
    pages = [
        tag("a", label, href=link("feed", feed.id, page=str(to), **query) + "#tables", class_="button")
        for label, to in (("Previous", page - 1), ("Next", page + 1))
        if 1 <= to <= last
    ]
    shown = f"Tables: {found.matching:,} of {feed.tables:,}" + (f", page {page} of {last}" if last > 1 else "")
    rows = listed(shown, columns, found.tables, id=lambda each: f"table-{each.id}")
    return join(search, rows, tag("div", pages, class_="actions") if pages else None)


def _options(picture: FeedPicture) -> Iterator[Markup]:
    chosen = picture.tables.query.state
    yield tag("option", "all", value="", selected=not chosen)
    for state, count in sorted({chosen: 0, **picture.tables.states}.items()):
        if state:
            yield tag("option", f"{state} ({count:,})", value=state, selected=state == chosen)


def _table_state(each: pb.Table) -> Content:
    why = tag("div", each.error.message, class_="why") if each.HasField("error") else None
    return join(words.table_chip(each.state), why)


def _checkpoint(each: pb.Table) -> Content:
    return tag("span", words.place(each.checkpoint), title=each.checkpoint.partition("/")[0], class_="nowrap")


def _table_buttons(feed: pb.Changefeed, each: pb.Table) -> Iterator[Markup]:
    if each.kind == "view" or feed.state == pb.CHANGEFEED_STATE_FINISHED:
        return
    if each.trouble in ("stopped", "refused"):
        yield _act(feed, "table-resume", "Resume", table=each.id)
    elif each.trouble != "lost":
        yield _act(feed, "table-stop", "Stop", table=each.id)
    yield _act(feed, "table-recopy", "Copy anew", table=each.id)
    yield _act(feed, "table-move", "Move", table=each.id)


def _share(picture: FeedPicture) -> Markup:
    if not picture.nodes:
        return Markup()
    most = max(count for _, count in picture.nodes) or 1
    columns: Columns[tuple[str, int]] = (
        ("Node", lambda each: picture.names.get(each[0], each[0])),
        ("Tables", lambda each: join(share_bar(each[1] / most, "Of the most"), words.number(each[1]))),
    )
    return listed("Nodes that have its tables", columns, picture.nodes)


def _configuration(feed: pb.Changefeed) -> Markup:
    shown = tag(
        "details",
        tag("summary", f"Configuration, version {feed.version}"),
        tag("pre", feed.configuration, tabindex="0"),
    )
    capture = f"read by {feed.capture}, since {feed.capture_reason}" if feed.capture else ""
    return tag("div", dim(capture), shown, class_="card")
