"""Adapters from published task formats to our own task directories; no copied task enters the repository."""
