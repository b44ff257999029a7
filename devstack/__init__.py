"""The development stack: real etcd and two MongoDB servers, started by one call. Not part of the wheel."""
