"""`slime engine serve`: SGLang's HTTP before an engine of this machine, without a run."""
