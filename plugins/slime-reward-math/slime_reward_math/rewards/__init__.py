"""The rewards that slime-core finds: the graders of this package under slime's names, each with a `boxed_` variant."""
