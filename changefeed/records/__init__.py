"""The values in etcd, by which owner, processors and the admin API communicate. Pure.

`coordination.layout` defines their keys and encoding. Ranges are half-open: a position in a record is always the first one
*not* covered.
"""
