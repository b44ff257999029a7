"""`read_options`: how a changefeed's rows are read from its source."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from changefeed.config.configuration import Configuration
from changefeed.config.sinks.images import Images
from changefeed.documents.document import Document
from source.stream import filter_match
from source.stream.window_reader import BeforeChange, FullDocument, ReadOptions

PATIENCE = timedelta(seconds=3)
"""A server that is unreachable for longer is an error of the changefeed, which tries again. A task that waits longer would keep a core
from the tasks of other changefeeds, whose servers answer."""


def read_options(configuration: Configuration) -> ReadOptions:
    conditions = [rule.ignore_where for rule in configuration.filter.events if rule.ignore_where is not None]
    asked = configuration.images is not Images.NONE
    after = asked or any(condition.after_image for condition in conditions)
    before = asked or any(condition.before_image for condition in conditions)
    return ReadOptions(
        match=Document.of(filter_match.rows(configuration.filter)),
        full_document=FullDocument.WHEN_AVAILABLE if after else FullDocument.DEFAULT,
        before_change=BeforeChange.WHEN_AVAILABLE if before else BeforeChange.OFF,
        about=configuration.sink_can.keeps_messages,
        patience=PATIENCE,
    )


def image_options(configuration: Configuration) -> ReadOptions:
    """Also reads the documents before and after each change, where the source keeps them: for windows with divided tables."""
    after, before = FullDocument.WHEN_AVAILABLE, BeforeChange.WHEN_AVAILABLE
    return replace(read_options(configuration), full_document=after, before_change=before)


def streams_asked_for(configuration: Configuration) -> tuple[ReadOptions, ...]:
    """Every stream of rows that the changefeed may open."""
    plain, images = read_options(configuration), image_options(configuration)
    return (plain, images) if configuration.pipeline.pre_images else (plain,)
