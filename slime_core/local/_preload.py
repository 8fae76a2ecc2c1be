"""Imported once by the server process from which workers are forked; nothing here may start a thread."""

import torch
import transformers

torch.set_num_threads(1)
PRELOADED = (torch.__version__, transformers.__version__, transformers.AutoModelForCausalLM)
