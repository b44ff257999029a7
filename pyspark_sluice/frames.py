"""`latest`: the present state of tables from their rows. `documents`: their documents in columns of a user's schema."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, StringType, StructField, StructType
from pyspark.sql.types import _parse_datatype_string as parsed_schema

from pyspark_sluice.fitting import fitted
from sluice_client.feed_reader import DdlMessage

_DELTA = (
    "the newest change of a document says only what was changed, and not what the document is now: have the changefeed send whole documents "
    "(images: available, and changeStreamPreAndPostImages at the source), or read with start=earliest from a changefeed that always had them"
)
_LEFT_OUT = "%s was %s until %s, which the option tables leaves out, and so its documents of then: read from the start with both names in tables"
_STREAM = "latest() needs a table at rest: call it in foreachBatch, or on what spark.read gives"
_NUMBER = r'^\{"\$number(?:Int|Long|Double|Decimal)":"(-?\d+)(?:\.0+)?"\}$'


def latest(rows: DataFrame) -> DataFrame:
    """The documents that tables have after these rows: `id`, `ns`, `key`, `pos`, `ts`, `after`, `after_bson`, a row each.

    A table is its `id`. `ns` is its newest name. What a drop or a copy anew took away is not there, so the rows of DDL belong to `rows`. A document
    whose newest change is a delta without an image is refused, and so is a table that came from a name which the option `tables` leaves out. One
    that went to such a name is not there.
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
    newest = newest.select("id", "_row.*").join(_ends(ddl).join(_names(ddl), "id", "full"), "id", "full")
    since = f.when(f.col("op") == "r", f.col("schema")).otherwise(f.col("pos"))
    there = f.col("_emptied").isNull() | (since >= f.col("_emptied"))
    left_out = f.format_string(_LEFT_OUT, "_name", "_old_name", "_entered_at")
    entered = f.when(f.col("_entered_at") > f.coalesce("_emptied", f.lit("")), f.raise_error(left_out).cast("boolean"))
    refused = f.when((f.col("op") == "u") & f.col("after_bson").isNull(), f.raise_error(f.lit(_DELTA)).cast("boolean"))
    return (
        newest.where(f.coalesce(entered, f.lit(True)))
        .where(there & (f.col("op") != "d"))
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
    fit = f.udf(lambda raw: None if raw is None else fitted(bytes(raw), wanted), shape, useArrow=False)
    return rows.withColumn("_fitted", fit("after_bson")).select(*rows.columns, "_fitted.document", "_fitted._errors")


def _identity() -> Column:
    """The `_id` alone: what else is in a key may change. The server takes 7 and 7.0 for one, and "7" for another: of an array Spark keeps the quotes."""
    found = f.get_json_object(f.concat(f.lit("["), "key", f.lit("]")), "$[*]._id")
    null = f.when(f.col("key").isNotNull(), f.lit("null"))
    return f.coalesce(f.regexp_replace(found, _NUMBER, "$1"), null, f.hex("key_bson"))


def _ends(ddl: DataFrame) -> DataFrame:
    """Where a table was last ended or emptied, or got a name that is left out."""
    kind, ids = _said("type"), f.from_json(_said("ids"), "array<string>")
    own = ddl.where(kind.isin("drop", DdlMessage.EMPTIED.value) | (_said("left_out") == "after")).select("id", "pos")
    dropped = ddl.where(_said("dropped").isNotNull()).select(_said("dropped").alias("id"), "pos")
    databases = ddl.where(kind == "dropDatabase").select(f.explode(ids).alias("id"), "pos")
    return own.union(dropped).union(databases).groupBy("id").agg(f.max("pos").alias("_emptied"))


def _names(ddl: DataFrame) -> DataFrame:
    entered = f.when(_said("left_out") == "before", f.col("pos"))
    renames = ddl.where(_said("to").isNotNull()).select(
        "id", "pos", "ns", _said("to").alias("to"), entered.alias("entered")
    )
    return renames.groupBy("id").agg(
        f.max_by("to", "pos").alias("_name"),
        f.max("pos").alias("_named_at"),
        f.max_by("ns", "entered").alias("_old_name"),
        f.max("entered").alias("_entered_at"),
    )


def _said(name: str) -> Column:
    return f.get_json_object("ddl", f"$.{name}")
