"""`overview`: the cluster, its nodes, and a row for each changefeed. Pure."""

from __future__ import annotations

from datetime import datetime

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from console import words
from console.drawings import share_bar, sparkline
from console.frame import Columns, WebPage, button, facts, listed, titled
from console.markup import Content, Markup, join, link, name, tag
from console.picture import ClusterPicture, FeedFigures


def overview(picture: ClusterPicture, *, may_act: bool) -> WebPage:
    return WebPage(
        title="Changefeeds",
        sections={"cluster": _cluster(picture), "feeds": _feeds(picture), "nodes": _nodes(picture, may_act=may_act)},
        at=picture.at,
    )


def _cluster(picture: ClusterPicture) -> Markup:
    names = {node.id: node.name for node in picture.nodes}
    owner, unready = picture.owner, sum(bool(node.not_ready) for node in picture.nodes)
    waiting = sum(feed.stopped_tables for feed in picture.feeds)
    letters = sum(feed.open_letters.count for feed in picture.feeds)
    troubled = sum(_urgency(feed)[0] < words.URGENCY.index("info") or not _urgency(feed)[1] for feed in picture.feeds)
    looks = f"{troubled} need a look" if troubled > 1 else "1 needs a look" if troubled else "none needs a look"
    return facts(
        (
            ("Changefeeds", words.number(len(picture.feeds)), looks),
            ("Waiting for you", _bad_unless_0(waiting), "stopped, lost or refused tables"),
            ("Open letters", _bad_unless_0(letters), "rows that targets refuse"),
            (
                "Nodes",
                words.number(len(picture.nodes)),
                tag("span", f"{unready} not ready", class_="bad") if unready else "all ready",
            ),
            ("Owner", name(names.get(owner, owner) or "none"), "" if owner else "an election is running"),
        )
    )


def _bad_unless_0(count: int) -> Content:
    return tag("span", words.number(count), class_="bad" if count else None)


def _feeds(picture: ClusterPicture) -> Markup:
    if not picture.feeds:
        return titled(
            "Changefeeds",
            tag("p", "There is none yet: ", tag("code", "sluice changefeed create --help"), class_="card"),
        )

    def figures(feed: pb.Changefeed) -> FeedFigures:
        return picture.figures.get(feed.id, FeedFigures())

    columns: Columns[pb.Changefeed] = (
        ("Changefeed", lambda feed: tag("a", name(feed.id), href=link("feed", feed.id))),
        ("State", _state),
        ("Lag", lambda feed: tag("span", *lag_cells(feed, figures(feed), picture.at), class_="lag")),
        ("Checkpoint", lambda feed: words.age(feed.checkpoint, picture.at)),
        ("Oplog left", lambda feed: words.oplog_left(figures(feed).oplog_left, scarce=figures(feed).oplog_scarce)),
        ("Rows/s", lambda feed: words.rate(figures(feed).rows_rate)),
        ("Copy", copy_cell),
        ("Tables", _tables),
        ("Letters", lambda feed: _bad_unless_0(feed.open_letters.count)),
    )
    ordered = sorted(picture.feeds, key=_urgency)
    return listed("Changefeeds", columns, ordered, id=lambda feed: f"feed-{feed.id}", class_="feeds")


def _urgency(feed: pb.Changefeed) -> tuple[int, bool, str]:
    kind = words.STATES[words.state_of(feed)][0]
    return words.URGENCY.index(kind), not (feed.stopped_tables or feed.open_letters.count), feed.id


def _state(feed: pb.Changefeed) -> Content:
    error = tag("div", feed.error.code, class_="why", title=feed.error.message) if feed.HasField("error") else None
    return join(words.state_chip(feed), error)


def _tables(feed: pb.Changefeed) -> Content:
    held = f" · {words.number(feed.held_tables)} held" if feed.held_tables else ""
    trouble = tag("span", f"{feed.stopped_tables:,} in trouble", class_="bad") if feed.stopped_tables else None
    return join(words.number(feed.tables), held, " · " if trouble else None, trouble)


def lag_cells(feed: pb.Changefeed, figures: FeedFigures, now: datetime) -> tuple[Content, Content]:
    """What is finished has none."""
    if feed.state == pb.CHANGEFEED_STATE_FINISHED:
        return words.NOTHING, None
    return tag("span", words.lag_of(feed), class_="figure"), sparkline(figures.lags, now.timestamp(), "Lag")


def copy_cell(feed: pb.Changefeed) -> Content:
    if not feed.HasField("copy"):
        return words.NOTHING
    left = f", about {words.span(feed.copy.left.ToTimedelta())} left" if feed.copy.HasField("left") else ""
    return join(share_bar(feed.copy.share, "Copy"), tag("span", f"{100 * feed.copy.share:.0f} %{left}"))


def _nodes(picture: ClusterPicture, *, may_act: bool) -> Markup:
    def called(node: pb.Node) -> Content:
        marks = ["owner"] * node.owner + ["serves this page"] * (node.id == picture.serving)
        return join(name(node.name), tag("div", " · ".join([node.id, *marks]), class_="dim"))

    columns: Columns[pb.Node] = (
        ("Node", called),
        (
            "State",
            lambda node: join(_node_chip(node), tag("div", node.not_ready or node.last_error.message, class_="why")),
        ),
        ("Roles", lambda node: ", ".join(node.roles)),
        ("Tables", lambda node: words.number(node.tables)),
        ("Lag", words.lag_of),
        ("Version", lambda node: node.version),
        ("", lambda node: _drain(node) if may_act and "processor" in node.roles else ""),
    )
    return listed("Nodes", columns, picture.nodes, id=lambda node: f"node-{node.id}", class_="nodes")


def _drain(node: pb.Node) -> Markup:
    verb = "undrain" if node.draining else "drain"
    return button(verb.capitalize(), "node", node.id, "act", verb)


def _node_chip(node: pb.Node) -> Markup:
    if node.not_ready:
        return words.chip("bad", "✖", "not ready")
    return words.chip("warn", "⇄", "draining") if node.draining else words.chip("ok", "●", "ready")
