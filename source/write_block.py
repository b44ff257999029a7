"""`block_user_writes`: the users of the source write no more, so that a cut-over loses nothing. They can still read.

Users who may bypass it (`bypassWriteBlockingMode`, in the roles `restore` and `root`) go on writing, and so does the server itself.
The block stays, over restarts too, until somebody lifts it: after the cut-over, a write at the source would be lost.
"""

from changefeed.errors import SourceUnsupported
from source.connection import Client
from source.errors import translated

LIFTED_BY = "db.adminCommand({setUserWriteBlockMode: 1, global: false})"
_FIRST_MAJOR = 6


def block_user_writes(client: Client) -> None:
    """Returns once the writes that were being executed have ended. May be called again."""
    with translated("blocking the writes of the source's users"):
        version = client.server_info()["version"]
        if int(version.partition(".")[0]) < _FIRST_MAJOR:
            raise SourceUnsupported(
                f"the source is MongoDB {version}, which cannot block the writes of its users (6.0 can); stop the writers, and finalize "
                "without --block-writes"
            )
        client.admin.command({"setUserWriteBlockMode": 1, "global": True})
