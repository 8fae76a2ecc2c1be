"""What benchmarks/vs_trl.py needs besides a task: models of sizes that no package ships, and a device's limits."""
