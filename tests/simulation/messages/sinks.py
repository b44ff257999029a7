"""`with_messages`, `judge_of`: the options of a changefeed into a sink of messages, as its seed has them, and the judge of each kind of sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from changefeed.config.configuration import Configuration
from tests.simulation.cluster import Cluster
from tests.simulation.judgement.agreement import Agreement
from tests.simulation.judgement.judge import Judge
from tests.simulation.messages.file_judge import FileJudge
from tests.simulation.messages.topic_judge import TopicJudge


def with_messages(options: dict[str, Any], sink: str, random: Random, *, images: bool) -> dict[str, Any]:
    """Without what means nothing there. `images`: the source may show the documents before and after a change."""
    senseless = ("on_occupied", "on_divergence", "dead_letter")
    kept = {name: value for name, value in options.items() if name not in senseless}
    pipeline = {name: value for name, value in options["pipeline"].items() if name != "pre_images"}
    shown = {"images": random.choice(("none", "available"))} if images else {}
    return {**kept, "pipeline": pipeline, "sink": _SINKS[sink](random), **shown}


def _files(random: Random) -> str:
    return f"file:///feed?format={random.choice(('json', 'bson&layout=hive'))}&compression=none&commit_interval={random.choice((1, 1, 3))}s"


def _topics(random: Random) -> str:
    encoding, by = random.choice(("json", "bson")), random.choice(("key", "key", "table"))
    topic = random.choice(("", "", "&topic={prefix}.all"))
    return f"kafka://broker/feed?partitions={random.choice((1, 2, 3))}&partition_by={by}&encoding={encoding}{topic}"


_SINKS: Mapping[str, Callable[[Random], str]] = {"files": _files, "topics": _topics}


def judge_of(sink: str, cluster: Cluster, agreement: Agreement, configuration: Configuration) -> Judge:
    match sink:
        case "files":
            return FileJudge(cluster, agreement)
        case "topics":
            return TopicJudge(cluster, agreement, configuration.sink.reference)
        case _:
            return Judge(cluster, agreement)
