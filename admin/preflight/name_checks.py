"""Whether each table of the target is written by one table of one changefeed, and the dead letters lie where no changefeed writes."""

from __future__ import annotations

from collections.abc import Iterator

from admin.cluster_reader import tables_of
from admin.preflight.looked import Check, Looked, writes_no_more
from changefeed.config.overlap import common_target, writes
from changefeed.config.shared_place import shared_files, shared_topic
from changefeed.printable import counted, named
from owner.etcd_view import OwnerView


def _shared_targets(looked: Looked) -> Iterator[str]:
    configuration = looked.configuration
    mine = {looked.target(table): table.name for table in looked.tables}
    for id, known in sorted(looked.others.items()):
        other = known.info.configuration
        both = configuration.sink.is_mongodb and other.sink.is_mongodb
        if not both or not _one_target(looked, known) or writes_no_more(known):
            continue
        names = {schema.name for schema in tables_of(known).living}
        here = looked.source.identity.id
        if _is_one(here, known.info.source_id, meet=bool(other.source.hosts & configuration.source.hosts)):
            names |= {table.name for table in looked.tables}
        theirs = {other.routes.target(name) for name in names if other.filter.wants_table(name)}
        shared = sorted(mine.keys() & theirs)
        common = shared[0] if shared else common_target(configuration, other)
        if common is not None:
            what = f"writes {named(shared)}" if shared else f"would write a table such as {common}"
            yield (
                f"routes: changefeed {id!r} {what} of this target too; give one of the two changefeeds other tables (filter.tables) "
                f"or other target names (routes), or remove {id!r}"
            )


def _one_target(looked: Looked, other: OwnerView) -> bool:
    hosts = other.info.configuration.sink.hosts & looked.configuration.sink.hosts
    return _is_one(looked.sink.identity.id, other.info.sink_id, meet=bool(hosts))


def _is_one(here: str | None, there: str | None, *, meet: bool) -> bool:
    """By the ids of the deployments, since a host has many names. `meet`: whether they name a host alike, which decides where an id is unknown."""
    return here == there if here and there else meet


def _shared_messages(looked: Looked) -> Iterator[str]:
    mine = looked.configuration.sink
    for id, known in sorted(looked.others.items()):
        if writes_no_more(known):
            continue
        theirs = known.info.configuration.sink
        topic, files = shared_topic(mine, theirs), shared_files(mine, theirs)
        meet = bool(mine.hosts & theirs.hosts)
        if topic is not None and _is_one(looked.sink.identity.id, looked.brokers.get(id), meet=meet):
            yield (
                f"sink: changefeed {id!r} writes into this Kafka, too, and a topic such as {topic} would be one of both; write a prefix that is not "
                f"a part of the other's, and {{prefix}} in topic, or remove {id!r}"
            )
        if files is not None:
            yield (
                f"sink: changefeed {id!r} has files in {files}, too, or one of the two places is within the other; name a directory or prefix beside, "
                f"or remove {id!r}"
            )


def _merged(looked: Looked) -> Iterator[str]:
    for target, names in looked.merged.items():
        yield (
            f"routes: {named(names)} would all be {target} at the target, and no rule asks for that; give them different names, leave one out "
            f"(filter.tables), or write a rule whose `to` is {target}, without a wildcard, for all of them"
        )


def _replicated_letters(looked: Looked) -> Iterator[str]:
    """A table that is replicated must have no other rows; a rename or a drop at the source would also take the letters."""
    letters = looked.configuration.dead_letter
    if letters is None:
        return
    found = {looked.target(table): f"{table.name} of the source" for table in looked.tables}
    for id, known in sorted(looked.others.items()):
        other = known.info.configuration
        if other.sink.is_mongodb and _one_target(looked, known) and not writes_no_more(known):
            names = [schema.name for schema in tables_of(known).living if other.filter.wants_table(schema.name)]
            found |= {other.routes.target(name): f"{name} of changefeed {id!r}" for name in names}
    if letters in found:
        yield f"dead_letter: {letters} is where {found[letters]} is replicated to; name a table that no changefeed writes"


def _letters_left(looked: Looked) -> Iterator[str]:
    """Letters are looked for in the table that the configuration names, and nowhere else."""
    before, status = looked.before, looked.replaces.known.status if looked.replaces is not None else None
    if before is None or status is None or before.dead_letter == looked.configuration.dead_letter:
        return
    if status.letters.count:
        yield (
            f"dead_letter: {counted(status.letters.count, 'row')} that the target rejects would be forgotten with the letters in {before.dead_letter}; "
            f"`sluice table rejected {looked.configuration.id}` lists them: have them written (retry-rejected) or forget them (drop-rejected) first"
        )


def _letters_in_reach(looked: Looked) -> Iterator[str]:
    letters = looked.configuration.dead_letter
    if looked.at_target is not None and letters is not None and writes(looked.configuration, letters):
        yield (
            f"dead_letter: {letters} is a name that the changefeed would replicate if the source gets such a table, which would stop at the "
            "letters; name a table outside of filter.tables, or leave the name out there"
        )


def _users_of_routed_databases(looked: Looked) -> Iterator[str]:
    moved = sorted({table.name.db for table in looked.tables if looked.target(table).db != table.name.db})
    if looked.configuration.users and moved:
        yield (
            f"users: tables of {', '.join(moved)} are routed to other databases, while users and roles are replicated as they are: what they may "
            "do in the source's databases, they may do in databases of these names at the target"
        )


def _not_compared(looked: Looked) -> Iterator[str]:
    for id in sorted(looked.unreadable):
        yield (
            f"routes: the records of changefeed {id!r} cannot be read, so nothing says whether it would write tables of this target too, were it "
            f"readable again; remove it if it is not needed (`sluice changefeed query {id}`)"
        )


PROBLEMS: tuple[Check, ...] = (_shared_targets, _shared_messages, _merged, _replicated_letters, _letters_left)
WARNINGS: tuple[Check, ...] = (_letters_in_reach, _users_of_routed_databases, _not_compared)
