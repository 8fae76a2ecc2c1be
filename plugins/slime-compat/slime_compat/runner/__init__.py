"""SlimeRunner: a run from Python, with the names of the class that awslabs' agentcore-rl-toolkit has.

`fields` says what there is, `keys` what run file it makes, `started` what process it is, `result` what came of it.
"""
