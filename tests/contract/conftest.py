"""What the contract's tests share."""

from .desk import desk as desk
