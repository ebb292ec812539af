"""Fixtures that the contract's tests share."""

from .served import guarded as guarded
from .served import server as server
