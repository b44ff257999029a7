"""The floor: what nobody can beat who leaves both servers as they are.

One process reads a range of the oplog as raw batches and splits them, or sends commands that `Recorder` has kept from the product; with both it does
both at a time. There is no translation, no safety, and no order: commands go over two connections
in turn, so no row may have two of them.

    python -m bench.baselines.floor SOURCE --from 1795224774.9 --to 1795224790.1 [--target TARGET --commands FILE]
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.read_concern import ReadConcern

from bench.baselines.baseline import say_done, wait_for_start
from changefeed.cluster_time import ClusterTime

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_MAJORITY = ReadConcern("majority")
_REPLY_BODY = 21
_CONNECTIONS = 2
_Client = MongoClient[Any]


def read(source: _Client, *, start_ts: ClusterTime, end_ts: ClusterTime) -> None:
    oplog = source["local"].get_collection("oplog.rs", read_concern=_MAJORITY)
    for batch in oplog.find_raw_batches({"ts": {"$gte": start_ts.to_bson(), "$lt": end_ts.to_bson()}}):
        bson.decode_all(batch, _RAW)


def send(messages: Sequence[bytes], to: tuple[str, int]) -> None:
    """One after the other, each as an answer has come. Raises when a command failed."""
    with socket.create_connection(to) as target, target.makefile("rb") as replies:
        for message in messages:
            target.sendall(message)
            size = replies.read(4)
            reply = bson.decode((size + replies.read(int.from_bytes(size, "little") - 4))[_REPLY_BODY:])
            if reply["ok"] != 1 or reply.get("writeErrors") or reply.get("nErrors"):
                raise RuntimeError(f"expected a command that succeeds again, found {reply}")


def _messages(path: Path) -> Iterator[bytes]:
    kept = path.read_bytes()
    at = 0
    while at < len(kept):
        size = int.from_bytes(kept[at : at + 4], "little")
        yield kept[at : at + size]
        at += size


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--target")
    parser.add_argument("--commands", type=Path)
    parser.add_argument("--from", dest="start", required=True, type=ClusterTime.parse)
    parser.add_argument("--to", dest="end", required=True, type=ClusterTime.parse)
    given = parser.parse_args(arguments)
    works = []
    with _Client(given.source) as source, ThreadPoolExecutor() as threads:
        if given.target:
            with _Client(given.target) as target:
                target.admin.command("ping")
                to = target.primary or ("", 0)
            messages = list(_messages(given.commands))
            works = [partial(send, messages[turn::_CONNECTIONS], to) for turn in range(_CONNECTIONS)]
        works.append(partial(read, source, start_ts=given.start, end_ts=given.end))
        wait_for_start()
        for work in [threads.submit(each) for each in works]:
            work.result()
        say_done()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
