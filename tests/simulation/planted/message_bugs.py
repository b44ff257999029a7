"""Bugs of sinks of messages."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from owner.chores import SinkChores
from processor.copy import copy_task
from processor.copy.steps import CopyAnswer, CopyStep, MakeEmpty
from processor.job_runs import Commits
from processor.task.changefeed_resources import ChangefeedResources
from processor.task.job import JobContext, JobOutcome, JobSpec
from sink.messages.files.feed_log import FileDdlApplier, FileLeftovers
from tests.simulation.planted.bug import Bug


def _windows_are_not_committed() -> AbstractContextManager[Any]:
    return patch.object(Commits, "window", lambda self, context, spec, outcome: None)


def _an_early_end_is_committed_as_the_whole() -> AbstractContextManager[Any]:
    window = Commits.window

    def whole(self: Commits, context: JobContext, spec: JobSpec, outcome: JobOutcome) -> None:
        window(self, context, spec, replace(outcome, ended=None))

    return patch.object(Commits, "window", whole)


def _watermarks_do_not_name_who_is_behind() -> AbstractContextManager[Any]:
    mark = SinkChores.mark
    return patch.object(SinkChores, "mark", lambda self, checkpoint, behind, tables: mark(self, checkpoint, {}, tables))


def _what_living_nodes_wrote_is_swept() -> AbstractContextManager[Any]:
    sweep = FileLeftovers.sweep
    return patch.object(FileLeftovers, "sweep", lambda self, gone: sweep(self, lambda epoch: True))


def _a_copy_that_begins_again_does_not_say_so() -> AbstractContextManager[Any]:
    return patch.object(FileDdlApplier, "emptied", lambda self, table, name, at: None)


def _a_table_that_is_emptied_first_is_not_described() -> AbstractContextManager[Any]:
    done = copy_task._done

    def planted(resources: ChangefeedResources, step: CopyStep) -> CopyAnswer:
        return done(resources, replace(step, first_from=None) if isinstance(step, MakeEmpty) else step)

    return patch.object(copy_task, "_done", planted)


MESSAGE_BUGS: Mapping[str, Bug] = {
    "windows are not committed": Bug(_windows_are_not_committed, 10, sink="files"),
    "an early end is committed as the whole": Bug(_an_early_end_is_committed_as_the_whole, 12, sink="files"),
    "watermarks do not name who is behind": Bug(_watermarks_do_not_name_who_is_behind, 80, sink="files"),
    "what living nodes wrote is swept": Bug(_what_living_nodes_wrote_is_swept, 10, sink="files"),
    "a copy that begins again does not say so": Bug(_a_copy_that_begins_again_does_not_say_so, 50, sink="files"),
    "a table that is emptied first is not described": Bug(
        _a_table_that_is_emptied_first_is_not_described, 20, sink="files"
    ),
}
