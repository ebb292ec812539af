"""What the contract's tests share."""

from .desk import desk as desk
from .served import guarded as guarded
from .served import server as server
