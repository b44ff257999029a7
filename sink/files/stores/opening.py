"""`open_store`: the store that a URI names."""

from __future__ import annotations

from changefeed.config.sinks.store_place import DirectoryPlace, StorePlace
from credentials.secret_files import SecretFiles
from sink.files.stores.directory import Directory
from sink.files.stores.store import Store


def open_store(place: StorePlace, files: SecretFiles | None = None) -> Store:
    """Reaches nothing yet. `files`: from which credentials may be read, if not those that this process was started with."""
    if isinstance(place, DirectoryPlace):
        return Directory(place.path)
    from sink.files.stores.bucket import ObjectBucket  # noqa: PLC0415 - it loads the client of S3, which takes time and memory
    from sink.files.stores.bucket_clients import bucket_client  # noqa: PLC0415 - as above

    return ObjectBucket(place, lambda: bucket_client(place, files))
