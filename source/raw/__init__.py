"""What both captures and the reads of tables share: BSON by offset, raw finds, raw rows."""
