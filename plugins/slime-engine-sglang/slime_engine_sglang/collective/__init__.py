"""Sends weights from the trainer's first rank to servers, by broadcasts or memory handles."""
