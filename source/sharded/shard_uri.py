"""`shard_uri`: the connection string of a shard, made of that of its config servers. Pure.

    mongodb://reader:secret@cfg1:27019,cfg2:27019/?replicaSet=cfg&tls=true    and the shard's host sa/db1:27018,db2:27018 give
    mongodb://reader:secret@db1:27018,db2:27018/?replicaSet=sa&tls=true

Users of a shard are its own, but usually one name and password is created on all of them. A shard that differs has credentials of its own.
"""

from __future__ import annotations

from changefeed.errors import SourceUnsupported

_OF_ONE_SET = frozenset({"replicaset", "directconnection", "loadbalanced", "srvservicename", "srvmaxhosts"})
_SRV = "mongodb+srv://"


def shard_uri(source: str, host: str, credentials: str | None = None) -> str:
    """`host` is that of `config.shards`. `credentials`: `user:password`, percent-encoded."""
    name, separator, members = host.partition("/")
    if not separator:
        raise SourceUnsupported(f"the host of a shard in config.shards is {host!r}, without the name of a replica set")
    _, _, rest = source.partition("://")
    authority, _, tail = rest.partition("/")
    if "?" in authority:
        authority, _, options = authority.partition("?")
        database = ""
    else:
        database, _, options = tail.partition("?")
    user = credentials if credentials is not None else authority.rpartition("@")[0]
    stated = [each for each in options.split("&") if each and each.partition("=")[0].lower() not in _OF_ONE_SET]
    if source.startswith(_SRV) and not any(each.lower().startswith(("tls=", "ssl=")) for each in stated):
        stated.append("tls=true")
    who = f"{user}@" if user else ""
    return f"mongodb://{who}{members}/{database}?{'&'.join([f'replicaSet={name}', *stated])}"
