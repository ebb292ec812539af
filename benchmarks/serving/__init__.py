"""litebert serve beside transformers behind FastAPI."""
