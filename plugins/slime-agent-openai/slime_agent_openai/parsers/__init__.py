"""Parse an answer's tokens into reasoning, text and tool calls."""
