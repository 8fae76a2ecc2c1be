"""Train: the pure functions of training, used unchanged by every trainer.

Splitting a step over ranks needs no torch and happens in the driver; advantages, losses and the rest run on the ranks.
Import the modules by name: this package itself stays free of torch.
"""
