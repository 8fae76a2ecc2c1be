# slime-core with the local trainer and engine, on CPUs: what `make demo` and plugins' tests need.
#
#   make dist && docker build -f docker/cpu.Dockerfile -t slime-core:cpu .
#   docker run --rm -v "$PWD/runs:/home/slime/runs" slime-core:cpu demo
FROM python:3.12-slim-bookworm

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1

# Third parties first, by version and hash, so that a change of ours rebuilds the last layer alone.
COPY docker/cpu.lock /tmp/
RUN pip install --require-hashes -r /tmp/cpu.lock \
  && pip install --no-deps torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu

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
