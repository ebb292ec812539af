"""litebert serve beside other engines behind FastAPI."""
