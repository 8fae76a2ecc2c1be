"""SlimeRunner: a run from Python, with the interface of the class in awslabs' agentcore-rl-toolkit.

`fields` has the fields and the run file, `process` the process and its result, `runner` the class.
"""
