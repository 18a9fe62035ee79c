"""Typing of the generated module: cffi objects have no static types."""

from typing import Any

ffi: Any
