# slime-core with the local trainer and engine, on NVIDIA GPUs. torch's wheels bring CUDA's libraries, and the host its
# driver: no image of CUDA's is needed below.
#
#   make dist && docker build -f docker/cuda.Dockerfile -t slime-core:cuda .
#   docker run --rm --gpus all --ipc host -v "$PWD:/home/slime/work" slime-core:cuda train work/run.toml
FROM python:3.12-slim-bookworm

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 \
  NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

# Triton compiles its launchers when a kernel is first used.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*

# Third parties first, by version and hash, so that a change of ours rebuilds the last layer alone.
COPY docker/cuda.lock /tmp/
RUN pip install --require-hashes -r /tmp/cuda.lock

# Ours by path and without dependencies: no index is asked for their names.
COPY dist/wheelhouse/*.whl /tmp/wheels/
RUN pip install --no-deps \
  /tmp/wheels/slime_core-*.whl /tmp/wheels/slime_agent_openai-*.whl /tmp/wheels/slime_algorithms-*.whl \
  /tmp/wheels/slime_buffer_priority-*.whl /tmp/wheels/slime_compat-*.whl /tmp/wheels/slime_engine_sglang-*.whl \
  /tmp/wheels/slime_local-*.whl /tmp/wheels/slime_reward_math-*.whl /tmp/wheels/slime_simulate-*.whl \
  /tmp/wheels/slime_testing-*.whl /tmp/wheels/slime_trackers-*.whl /tmp/wheels/slime_train-*.whl /tmp/wheels/slime_view-*.whl \
  && pip check && useradd --create-home --uid 1000 slime

USER 1000
WORKDIR /home/slime
ENTRYPOINT ["slime"]
