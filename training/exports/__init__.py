"""Training rows in the formats of other trainers."""

from training.exports.conversations import Conversation, Speech, conversations_of
from training.exports.formats import FORMATS, write

__all__ = ["FORMATS", "Conversation", "Speech", "conversations_of", "write"]
