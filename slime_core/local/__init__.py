"""The embedded default: launcher, engine and trainer of one machine, plain torch on CPU, nothing to install beside.

The modules that import torch (`model`, `decode`, `rank`, `engine_worker`) are imported in worker processes only.
"""
