"""The floor: the cost of the bytes themselves. It reads one range of the oplog as raw batches and sends its inserts by collection.

One process, no order, no safety. Without a target it only reads and splits the batches.

    python -m bench.baselines.floor SOURCE --from 1795224774.9 --to 1795224790.1 --database bench [--target TARGET]
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern
from pymongo.read_concern import ReadConcern

from bench.baselines.baseline import say_done, wait_for_start
from changefeed.cluster_time import ClusterTime

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_MAJORITY = ReadConcern("majority")
_Client = MongoClient[Any]


def replicate(
    source: _Client, target: _Client | None, *, start_ts: ClusterTime, end_ts: ClusterTime, database: str
) -> None:
    oplog = source["local"].get_collection("oplog.rs", read_concern=_MAJORITY)
    within = {"ts": {"$gte": start_ts.to_bson(), "$lt": end_ts.to_bson()}}
    ours = f"{database}."
    for batch in oplog.find_raw_batches(within):
        documents: dict[str, list[RawBSONDocument]] = defaultdict(list)
        for entry in bson.decode_all(batch, _RAW):
            if target is not None and entry["op"] == "i" and entry["ns"].startswith(ours):
                documents[entry["ns"].removeprefix(ours)].append(entry["o"])
        if target is not None:
            for coll, some in documents.items():
                target[database].get_collection(coll, _RAW, write_concern=WriteConcern("majority")).insert_many(
                    some, ordered=False
                )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--target")
    parser.add_argument("--from", dest="start", required=True, type=ClusterTime.parse)
    parser.add_argument("--to", dest="end", required=True, type=ClusterTime.parse)
    parser.add_argument("--database", required=True)
    given = parser.parse_args(arguments)
    with _Client(given.source) as source:
        target = _Client(given.target) if given.target else None
        wait_for_start()
        replicate(source, target, start_ts=given.start, end_ts=given.end, database=given.database)
        say_done()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
