"""What keeps the tables of a source from being replicated as a configuration says, and what it should make a user think about."""

from __future__ import annotations

from collections.abc import Iterator

from admin.preflight.looked import Check, Looked
from admin.preflight.table_obstacles import column_obstacles, column_warnings, series_obstacles
from changefeed.errors import SluiceError
from changefeed.printable import named
from credentials.secrets import hash_key

_MOST_EXCLUDED = 5


def _encrypted(looked: Looked) -> Iterator[str]:
    """A server lets no client insert a document that has the index of Queryable Encryption in it, `__safeContent__`."""
    if looked.sink.version is None:
        return
    names = sorted(table.name for table in looked.tables if "encryptedFields" in table.options.decode())
    if names:
        excluded = ", ".join(f'"!{name}"' for name in names[:_MOST_EXCLUDED])
        yield (
            f"filter.tables: Queryable Encryption cannot be replicated, since a target refuses its documents: {named(names)}; "
            f"leave them out, with {excluded} at the end"
        )


def _series(looked: Looked) -> Iterator[str]:
    yield from series_obstacles(
        looked.configuration,
        looked.tables,
        looked.capture,
        (looked.source.version, looked.sink.version),
        (looked.source.privileges, looked.sink.privileges),
    )


def _hash_keys(looked: Looked) -> Iterator[str]:
    for reference in sorted({rule.hash_key for rule in looked.configuration.columns if rule.hash_key is not None}):
        try:
            hash_key(reference)
        except SluiceError as error:
            yield f"columns: {error}"


def _columns(looked: Looked) -> Iterator[str]:
    replaces = looked.replaces
    yield from column_obstacles(
        looked.configuration,
        looked.tables,
        looked.source.version,
        looked.before if replaces is not None and replaces.begun else None,
        [table.name for table in replaces.tables] if replaces is not None else (),
    )


def _without_tables(looked: Looked) -> Iterator[str]:
    if looked.at_target is not None and not looked.tables:
        patterns = named(looked.configuration.filter.tables)
        yield (
            f"filter.tables: the source has no table that matches {patterns}; the changefeed waits until one is created. Check the names if "
            "there should be one already"
        )


def _columns_elsewhere(looked: Looked) -> Iterator[str]:
    if looked.source.read and looked.sink.privileges is not None:
        yield from column_warnings(looked.configuration, looked.tables)


def _late_for_the_oplog(looked: Looked) -> Iterator[str]:
    delay, span = looked.configuration.delay, looked.source.oplog_span
    if delay is not None and span is not None and span < delay.span:
        yield (
            f"delay: changes wait for {delay} in the source's oplog, which reaches back {span.total_seconds() / 60:.0f} min now; make sure that it lasts "
            "longer than the delay and your longest pause, or the changefeed loses its history"
        )


PROBLEMS: tuple[Check, ...] = (lambda looked: looked.source.problems, _encrypted, _series, _hash_keys, _columns)
WARNINGS: tuple[Check, ...] = (_without_tables, _columns_elsewhere, _late_for_the_oplog)
