"""Values of any size for property tests of what is written from BSON."""

from __future__ import annotations

from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from hypothesis import strategies as st

OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)
"""Dates of BSON go far beyond those of Python."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(
    st.one_of(st.sampled_from("%{}\"'\\"), st.characters(exclude_categories=["Cs"], exclude_characters="\0$")),
    max_size=8,
)
int64s = st.integers(-(2**63), 2**63 - 1)
