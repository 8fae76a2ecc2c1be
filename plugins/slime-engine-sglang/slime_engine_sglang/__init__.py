"""slime-engine-sglang: the engine `sglang` generates on SGLang servers, started by the run or already running."""
