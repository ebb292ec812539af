"""What these tests share: the desk of the contract, where small models and runs lie."""

from tests.contract.tiny import desk as desk
