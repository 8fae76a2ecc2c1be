"""Contracts of the tensor roles: advantage, loss, correction, trainer; the one part of the kit that needs torch."""
