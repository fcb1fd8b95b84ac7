"""Views of a run while it goes: told of every record after it is durable, never able to stop it."""
