"""Runs windows and copies in Spark. The only room that imports pyspark."""
