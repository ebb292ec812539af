"""Fixtures that the contract's tests share."""

from .served import guarded as guarded
from .served import server as server
from .tiny import desk as desk
from .tiny import random_model as random_model
