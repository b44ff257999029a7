"""`choose`: the capture of a changefeed, from the option `capture` and the obstacles to reading the oplog. Pure.

    asked            no obstacle             an obstacle
    auto             oplog                   change_stream, with the reason
    oplog            oplog                   refused, with the remedy
    change_stream    change_stream           change_stream

It is decided when the changefeed is created, and again only when a user changes the option.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.config.sinks.message_options import Images
from changefeed.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureChoice:
    capture: Capture
    """Never `auto`."""
    reason: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the oplog cannot be read, and the remedy."""

    reason: str
    remedy: str


ROUTER = Obstacle(
    "the source is a sharded cluster, and mongos shows no oplog",
    "name its config servers as the source, or write change_stream, or leave capture out",
)
MAJORITY_READS_DISABLED = Obstacle(
    "the source runs with enableMajorityReadConcern false, so entries that its oplog shows may be rolled back",
    "start its members without that setting, or write change_stream",
)


def not_allowed(answer: str) -> Obstacle:
    """`answer` is the server's."""
    return Obstacle(
        f"the source's user may not read local.oplog.rs, for which it needs read on database local or the role clusterMonitor ({answer})",
        "grant it one of these, or write change_stream",
    )


def choose(asked: Capture, obstacles: Sequence[Obstacle]) -> CaptureChoice:
    match asked:
        case Capture.CHANGE_STREAM:
            return CaptureChoice(capture=asked, reason="it was asked for")
        case Capture.SHARD_OPLOGS:
            return CaptureChoice(capture=asked, reason="the source is a sharded cluster, named by its config servers")
        case Capture.AUTO if obstacles:
            reason = "; ".join(obstacle.reason for obstacle in obstacles)
            return CaptureChoice(capture=Capture.CHANGE_STREAM, reason=reason)
        case Capture.OPLOG if obstacles:
            raise ConfigurationError(
                [
                    f"capture: oplog is not possible, since {obstacle.reason}; {obstacle.remedy}"
                    for obstacle in obstacles
                ]
            )
        case Capture.AUTO:
            return CaptureChoice(capture=Capture.OPLOG, reason="the source is a replica set whose oplog can be read")
        case Capture.OPLOG:
            return CaptureChoice(capture=asked, reason="it was asked for")


def image_obstacles(configuration: Configuration) -> Iterator[Obstacle]:
    """The oplog does not hold the whole documents before and after a change."""
    for rule in configuration.filter.events:
        where = rule.ignore_where
        if where is not None and (where.before_image or where.after_image):
            asked = f"filter.events asks for documents before or after changes of {', '.join(map(str, rule.tables))}"
            yield Obstacle(f"{asked}, which only change streams show", "write change_stream, or take the condition out")
    if configuration.images is not Images.NONE:
        yield Obstacle(
            f"images: {configuration.images} asks for documents before and after changes, which only change streams show",
            "write change_stream, or leave images out",
        )
    if configuration.pipeline.pre_images:
        yield Obstacle(
            "pipeline.pre_images asks for documents before and after changes, which only change streams show",
            "write change_stream, or leave pipeline.pre_images out",
        )
