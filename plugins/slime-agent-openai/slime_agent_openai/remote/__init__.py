"""Agents that run elsewhere: in runtimes of Amazon Bedrock AgentCore."""
