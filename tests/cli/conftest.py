"""The desk of the contract's tests, which has small models and runs."""

from tests.contract.tiny import desk as desk
