"""Contracts of the tensor roles and of transports; only this part of the kit needs torch."""
