"""`latest`: the present state of tables from their rows. `documents`: their documents in columns of a user's schema."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, StringType, StructField, StructType
from pyspark.sql.types import _parse_datatype_string as parsed_schema

from pyspark_sluice.fitting import fitted

_DELTA = (
    "the newest change of a document says only what was changed, and not what the document is now: have the changefeed send whole documents "
    "(images: available, and changeStreamPreAndPostImages at the source), or read with start=earliest from a changefeed that always had them"
)
_STREAM = "latest() needs a table at rest: call it in foreachBatch, or on what spark.read gives"
_NUMBER = r'^\{"\$number(?:Int|Long|Double|Decimal)":"(-?\d+)(?:\.0+)?"\}$'


def latest(rows: DataFrame) -> DataFrame:
    """The documents that tables have after these rows: `id`, `ns`, `key`, `pos`, `ts`, `after`, `after_bson`, a row each.

    A table is its `id`. `ns` is its newest name. What a drop or a recopy took away is not there, so the rows of DDL belong to `rows`. A document
    whose newest change is a delta without an image is refused.
    """
    if rows.isStreaming:
        raise ValueError(_STREAM)
    ddl = rows.where("ddl IS NOT NULL")
    changes = rows.where("ddl IS NULL").withColumn("_id", _identity())
    order = f.struct("pos", (f.col("op") == "r").cast("int"))
    newest = changes.groupBy("id", "_id").agg(
        f.max_by(f.struct("ns", "key", "key_bson", "pos", "ts", "op", "schema", "after", "after_bson"), order).alias(
            "_row"
        )
    )
    newest = newest.select("id", "_row.*").join(_ends(ddl), "id", "left").join(_names(ddl), "id", "left")
    since = f.when(f.col("op") == "r", f.col("schema")).otherwise(f.col("pos"))
    there = f.col("_emptied").isNull() | (since >= f.col("_emptied"))
    refused = f.when((f.col("op") == "u") & f.col("after_bson").isNull(), f.raise_error(f.lit(_DELTA)).cast("boolean"))
    return (
        newest.where(there & (f.col("op") != "d"))
        .where(f.coalesce(refused, f.lit(True)))
        .withColumn("ns", f.when(f.col("_named_at") >= f.col("pos"), f.col("_name")).otherwise(f.col("ns")))
        .select("id", "ns", "key", "key_bson", "pos", "ts", "after", "after_bson")
    )


def documents(rows: DataFrame, schema: StructType | str) -> DataFrame:
    """The rows with two columns more: `document`, which is `after` by this schema, and `_errors`.

    A field that is missing is null. One that does not fit is null, too, and `_errors` has its name with what was found. Nothing is inferred, and no
    document fails a query.
    """
    wanted = parsed_schema(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType):
        raise TypeError(
            f"schema: expected fields such as 'total double, address struct<city: string>', found {schema!r}"
        )
    shape = StructType([StructField("document", wanted), StructField("_errors", ArrayType(StringType()))])
    fit = f.udf(lambda raw: None if raw is None else fitted(bytes(raw), wanted), shape)
    return rows.withColumn("_fitted", fit("after_bson")).select(*rows.columns, "_fitted.document", "_fitted._errors")


def _identity() -> Column:
    """The `_id` alone: what else is in a key may change. The server takes 7 and 7.0 for one."""
    found = f.regexp_replace(f.get_json_object("key", "$._id"), _NUMBER, "$1")
    return f.coalesce(found, f.hex("key_bson"))


def _ends(ddl: DataFrame) -> DataFrame:
    """Where a table was last ended or emptied."""
    kind, ids = _said("type"), f.from_json(_said("ids"), "array<string>")
    own = ddl.where(kind.isin("drop", "recopy")).select("id", "pos")
    dropped = ddl.where(_said("dropped").isNotNull()).select(_said("dropped").alias("id"), "pos")
    databases = ddl.where(kind == "dropDatabase").select(f.explode(ids).alias("id"), "pos")
    return own.union(dropped).union(databases).groupBy("id").agg(f.max("pos").alias("_emptied"))


def _names(ddl: DataFrame) -> DataFrame:
    renames = ddl.where(_said("to").isNotNull()).select("id", "pos", _said("to").alias("to"))
    return renames.groupBy("id").agg(f.max_by("to", "pos").alias("_name"), f.max("pos").alias("_named_at"))


def _said(name: str) -> Column:
    return f.get_json_object("ddl", f"$.{name}")
